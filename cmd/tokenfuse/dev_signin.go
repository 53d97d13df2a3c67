package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/tokenfuse/tokenfuse/internal/auth"
)

// refusedTokens says on w why a caller got 401. In production that stands in the log.
func refusedTokens(w io.Writer) func(auth.Reason) {
	// What a good token of another issuer is refused for here.
	foreign := []auth.Reason{auth.Algorithm, auth.KidMissing, auth.KeyUnknown, auth.KeyUnfit, auth.Signature, auth.Issuer}
	return func(reason auth.Reason) {
		line := fmt.Sprintf("401, %s: %s", reason, reason.Help())
		if slices.Contains(foreign, reason) {
			line += " dev takes the tokens of its own issuer alone: tokenfuse token --sub 123"
		}
		fmt.Fprintln(w, line)
	}
}
