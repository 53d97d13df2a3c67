package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tokenfuse/tokenfuse/internal/policy"
)

// refusedOrigins tells, once for each of the first few, which pages were refused for their
// origin, and the line of the configuration that would let them call.
func refusedOrigins(w io.Writer, file string, p *policy.Policy) func(origin string) {
	const most = 20 // whoever reaches dev's port chooses what it prints
	var mu sync.Mutex
	var told []string
	return func(origin string) {
		mu.Lock()
		defer mu.Unlock()
		if len(told) >= most || slices.Contains(told, origin) {
			return
		}
		told = append(told, origin)
		if _, ok := policy.ParseOrigin(origin); !ok || strings.Contains(origin, "*") {
			fmt.Fprintf(w, "refused a page of origin %.200s: no such origin can be listed; a page that is opened as a file has none, so serve it from http://localhost\n", strconv.QuoteToASCII(origin))
			return
		}
		var list []string
		for _, o := range append(slices.Clone(p.CORS.Origins), policy.Origin(origin)) {
			list = append(list, strconv.Quote(string(o)))
		}
		fmt.Fprintf(w, "refused a page of %s: to let it call, write in %s\ncors: {origins: [%s]}\n", origin, file, strings.Join(list, ", "))
	}
}
