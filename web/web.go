// Package web has the page that dev serves, and the client that pages of others
// use. A page is HTML, a style and modules, as they stand here: nothing is built, and nothing
// is fetched from elsewhere, which the headers of each answer have the browser enforce.
package web

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed demo shared client/dist
var files embed.FS

// policy lets a page load what this server has, and nothing that stands in the HTML itself.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Page serves the page of a folder at /FOLDER/, and what pages share at /shared/ and /client/.
func Page(folder string) http.Handler {
	client, err := fs.Sub(files, "client/dist")
	if err != nil {
		panic(err) // no such name can be embedded
	}
	mux := http.NewServeMux()
	mux.Handle("GET /"+folder+"/", http.FileServerFS(files))
	mux.Handle("GET /shared/", http.FileServerFS(files))
	mux.Handle("GET /client/", http.StripPrefix("/client/", http.FileServerFS(client)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-cache") // of a page and its modules, one version
		mux.ServeHTTP(w, r)
	})
}
