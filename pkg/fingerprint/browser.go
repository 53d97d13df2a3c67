package fingerprint

import "net/http"

// LacksBrowserHeaders reports whether r is without one of the headers that every
// page's fetch carries: User-Agent, Accept-Language and Sec-Fetch-Mode. It is a
// reason to ask for a challenge sooner, never to deny.
//
// It looks at presence alone. Client libraries replace the user agent even in
// browsers, so its words prove nothing, while Sec-Fetch-Mode is out of a page's
// reach. Browsers older than Chrome 76, Firefox 90 and Safari 16.4 lack it, and all
// browsers leave it out over plain http, localhost excepted. Most other programs
// lack it too, but not those that copy a browser's headers, nor Node's fetch.
// Behind CloudFront the origin request policy must forward all three.
func LacksBrowserHeaders(r *http.Request) bool {
	return r.UserAgent() == "" || r.Header.Get("Accept-Language") == "" || r.Header.Get("Sec-Fetch-Mode") == ""
}

// LooksLikeServer reports whether r may come from a program that calls for others, such as
// a server: it LacksBrowserHeaders, or accepts every language, as Node's fetch says and no
// browser does. It is good for advice alone.
func LooksLikeServer(r *http.Request) bool {
	return LacksBrowserHeaders(r) || r.Header.Get("Accept-Language") == "*"
}
