package chatapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
	"github.com/tokenfuse/tokenfuse/testkit/widget"
)

// payload gets a challenge and solves it, as a browser's widget does.
func (g *rig) payload(addr string) string {
	g.t.Helper()
	r := g.request(http.MethodGet, "/v1/challenge", "", "")
	r.RemoteAddr = addr
	a := g.do(r)
	check.Must(g.t, a.status == http.StatusOK, "challenge: %d %s", a.status, a.body)
	return widget.Solve(g.t, []byte(a.body))
}

// post sends a body to the challenge's address.
func (g *rig) post(addr, body string) answer {
	g.t.Helper()
	r := g.request(http.MethodPost, "/v1/challenge", "", body)
	r.RemoteAddr = addr
	return g.do(r)
}

// solve gets a pass.
func (g *rig) solve(addr string) string {
	g.t.Helper()
	a := g.post(addr, `{"payload":"`+g.payload(addr)+`"}`)
	var got struct {
		Verified      bool
		Payload, Pass string
		ExpiresAt     int64 `json:"expires_at"`
	}
	err := json.Unmarshal([]byte(a.body), &got)
	check.Must(g.t, err == nil && a.status == http.StatusOK && got.Verified && got.Pass != "" && got.Payload == got.Pass, "solving: %d %s", a.status, a.body)
	return got.Pass
}

// limitsView is what /v1/limits answers.
type limitsView struct {
	Identity  struct{ Kind, ID, Tier string }
	Fuse      string
	Challenge struct{ Required bool }
	Limits    []struct {
		Name      string
		Remaining int64
	}
}

func (g *rig) limitsOf(addr, pass string) limitsView {
	g.t.Helper()
	r := g.request(http.MethodGet, "/v1/limits", "", "")
	r.RemoteAddr = addr
	r.Header.Set("User-Agent", "nobody yet")
	if pass != "" {
		r.Header.Set("X-Challenge-Pass", pass)
	}
	a := g.do(r)
	var view limitsView
	err := json.Unmarshal([]byte(a.body), &view)
	check.Must(g.t, err == nil && a.status == http.StatusOK, "limits: %d %s", a.status, a.body)
	return view
}

// setFuse sets the fuse behind everybody's back.
func (g *rig) setFuse(state string, until time.Time) {
	g.t.Helper()
	_, err := engine.Client(enginetest.URL()).PutItem(context.Background(), &dynamodb.PutItemInput{TableName: &g.bucket.Table, Item: map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberS{Value: "fuse"}, "state": &types.AttributeValueMemberS{Value: state},
		"until": &types.AttributeValueMemberN{Value: strconv.FormatInt(until.Unix(), 10)},
	}})
	check.OK(g.t, err)
}

// failing lets one kind of call to the store fail.
func failing(operation string) func(string, []byte) faults.Fault {
	return func(target string, _ []byte) faults.Fault {
		if strings.HasSuffix(target, "."+operation) {
			return faults.ServerError
		}
		return faults.None
	}
}

// wantNothingOpen asserts that no hold of an identity is left.
func (g *rig) wantNothingOpen(key string) {
	g.t.Helper()
	s, err := g.handler.admission.Buckets.Peek(context.Background(), key)
	if g.fuseFails.Load() {
		g.net.Plan = nil
		s, err = g.handler.admission.Buckets.Peek(context.Background(), key)
	}
	check.That(g.t, err == nil && s.InFlight == 0 && len(s.Holds) == 0, "%s: %d calls open, %v", key, s.InFlight, err)
}
