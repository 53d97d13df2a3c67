package main

import (
	"net"
	"net/http"
	"strings"

	"github.com/tokenfuse/tokenfuse/web"
)

// devRoutes gives front what the deployed API gives generate, paths as they are: a mux
// would answer doubled slashes with a redirect. The rest, which only admins and
// developers ask for, is routes'.
func devRoutes(front, routes http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			r.URL.Path = "/demo/" // where it also is
		}
		for _, prefix := range []string{"/dev/", "/admin/", "/demo/", "/shared/", "/client/"} {
			if strings.HasPrefix(r.URL.Path, prefix) {
				routes.ServeHTTP(w, r)
				return
			}
		}
		front.ServeHTTP(w, r)
	})
}

// devPages adds the page to routes, and what it needs beside the API.
func devPages(routes *http.ServeMux, functions *generations, modelURL string) {
	demo := web.Page("demo")
	for _, prefix := range []string{"/demo/", "/shared/", "/client/"} {
		routes.Handle("GET "+prefix, demo)
	}
	routes.Handle("POST /dev/attack", ofOwnPages(&attack{functions: functions, modelURL: modelURL}))
	own := functions.serve(func(g *generation) http.Handler { return g.own })
	routes.Handle("POST /dev/clear", ofOwnPages(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/admin/limits/clear"
		own.ServeHTTP(w, r)
	})))
}

// ofOwnPages refuses what a browser sends for a page of somebody else's. The host is
// compared, too: a name of theirs may lead here.
func ofOwnPages(next http.Handler) http.Handler {
	own := http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if host != "localhost" && net.ParseIP(host) == nil {
			http.Error(w, "for pages of dev alone", http.StatusForbidden)
			return
		}
		own.ServeHTTP(w, r)
	})
}
