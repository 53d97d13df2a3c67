package main

import (
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
		for _, prefix := range []string{"/dev/", "/admin/", "/demo/", "/console/", "/shared/", "/client/"} {
			if strings.HasPrefix(r.URL.Path, prefix) {
				routes.ServeHTTP(w, r)
				return
			}
		}
		front.ServeHTTP(w, r)
	})
}

// devPages adds the pages to routes.
func devPages(routes *http.ServeMux) {
	demo := web.Page("demo")
	for _, prefix := range []string{"/demo/", "/shared/", "/client/"} {
		routes.Handle("GET "+prefix, demo)
	}
	routes.Handle("GET /console/", web.Page("console"))
}
