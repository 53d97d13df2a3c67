package policy

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// Origin is an origin whose pages may call, or a pattern of such origins: * stands for one
// or more of a-z, 0-9, _ and - within one label of the host's name, and never for a dot.
type Origin string

// originShape is how browsers send the Origin header: of pages, and of apps and extensions
// that have a scheme of their own. A star must have two labels after it, or it would stand
// for whoever owns a domain. Extensions for Firefox and Safari have another name in each
// browser, so the star alone can stand for one.
var originShape = rarely("://", `^([a-z][a-z0-9+.-]*://[a-z0-9_.-]+(:[1-9][0-9]{0,4})?|https?://\[[0-9a-f:.]+\](:[1-9][0-9]{0,4})?`+
	`|https?://([a-z0-9_-]+\.)*[a-z0-9_-]*\*[a-z0-9_-]*(\.[a-z0-9_-]+){2,}(:[1-9][0-9]{0,4})?|(moz|safari-web)-extension://\*)$`)

const aboutOrigins = "must be an origin as browsers send it, such as https://app.example.com: http or https, host in lower case, port unless it is the usual one, nothing behind it. " +
	"One * may stand for a part of a name without dots, if two names follow (https://*-team.vercel.app). Apps and extensions have schemes of their own, such as capacitor://localhost and chrome-extension://ID"

// ParseOrigin reads an origin as it may stand in the file.
func ParseOrigin(s string) (Origin, bool) {
	if !plainOrigin(s) && !originShape.matches(s) {
		return "", false
	}
	u, err := url.Parse(strings.Replace(s, "*", "x", 1))
	if err != nil {
		return "", false
	}
	web := u.Scheme == "https" || u.Scheme == "http"
	if web && !strings.HasPrefix(u.Host, "[") && slices.ContainsFunc(strings.Split(u.Hostname(), "."), func(label string) bool { return !class("a-z0-9_*-").all(label) }) {
		return "", false
	}
	usual := map[string]string{"https": "443", "http": "80"}[u.Scheme]
	return Origin(s), u.Port() == "" || u.Port() != usual
}

// plainOrigin reports whether s has the shape of most origins, without a port or a star.
func plainOrigin(s string) bool {
	host, secure := strings.CutPrefix(s, "https://")
	return secure && class("a-z0-9_.-").all(host)
}

// Matches reports whether o is, or stands for, the value of an Origin header.
func (o Origin) Matches(origin string) bool {
	before, after, pattern := strings.Cut(string(o), "*")
	if !pattern {
		return string(o) == origin
	}
	rest, ok := strings.CutPrefix(origin, before)
	label, ok2 := strings.CutSuffix(rest, after)
	return ok && ok2 && class("a-z0-9_-").all(label)
}

// loopbackOrigin reports whether an Origin header names a page that this machine serves.
func loopbackOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && origin == u.Scheme+"://"+u.Host && (u.Scheme == "http" || u.Scheme == "https") &&
		(loopback(u) || strings.HasSuffix(u.Hostname(), ".localhost"))
}

// strangers says whose pages a pattern lets in beside the owner's; "": nobody's.
func (o Origin) strangers() string {
	before, after, pattern := strings.Cut(string(o), "*")
	if !pattern {
		return ""
	}
	if after == "" {
		return fmt.Sprintf("every extension has an origin that begins with %s", before)
	}
	_, domain, _ := strings.Cut(after, ".")
	domain, _, _ = strings.Cut(domain, ":")
	// The list has vercel.app, github.io and their like beside com and co.uk.
	if suffix, _ := publicsuffix.PublicSuffix(domain); suffix == domain {
		return fmt.Sprintf("anybody can register a name that ends with .%s", domain)
	}
	return ""
}
