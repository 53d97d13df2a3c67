package main

import (
	"net/http"
	"strings"
)

// devRoutes gives front what the deployed API gives generate, paths as they are: a mux
// would answer doubled slashes with a redirect. The rest, which only admins and
// developers ask for, is routes'.
func devRoutes(front, routes http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/dev/") || strings.HasPrefix(r.URL.Path, "/admin/") {
			routes.ServeHTTP(w, r)
			return
		}
		front.ServeHTTP(w, r)
	})
}
