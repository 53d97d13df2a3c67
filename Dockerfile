# The image of `tokenfuse serve`: see docs/serve.md. For another processor than the
# builder's, Go compiles across; nothing is emulated.
FROM --platform=$BUILDPLATFORM golang:1.26.8 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY functions functions
COPY internal internal
COPY local local
COPY pkg pkg
COPY web web
ARG TARGETOS TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags "-s -w" -o /tokenfuse ./cmd/tokenfuse

FROM gcr.io/distroless/static-debian13:nonroot
COPY --from=build /tokenfuse /tokenfuse
WORKDIR /etc/tokenfuse
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/tokenfuse", "serve"]
