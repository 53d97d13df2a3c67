package fingerprint_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/pkg/fingerprint"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const (
	currentSecret  = "current-origin-secret"
	previousSecret = "previous-origin-secret"

	ourEdge = "130.176.1.1" // the connection's source
	viewer  = "203.0.113.7"
	agent   = "Mozilla/5.0 (Macintosh) Safari/605.1.15"
	ja3     = "e7d705a3286e19ea42f587b344ee6865"
	ja4     = "t13d1516h2_8daaf6152771_02713d6af862"
	cipher  = "TLSv1.3:TLS_AES_128_GCM_SHA256"
)

func source(t testing.TB, secrets ...string) *fingerprint.Source {
	t.Helper()
	var raw [][]byte
	for _, s := range secrets {
		raw = append(raw, []byte(s))
	}
	src, err := fingerprint.NewSource(raw...)
	check.OK(t, err)
	return src
}

// request is what the gateway hands over when CloudFront sent it; change names
// and values, in turn, set headers (or remove them: "").
func request(change ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
	r.RemoteAddr = ourEdge + ":0"
	r.Header = http.Header{
		"User-Agent":                        {agent},
		"Cloudfront-Viewer-Address":         {viewer + ":46532"},
		"Cloudfront-Viewer-Ja3-Fingerprint": {ja3},
		"Cloudfront-Viewer-Ja4-Fingerprint": {ja4},
		"Cloudfront-Viewer-Tls":             {cipher + ":fullHandshake"},
	}
	for i := 0; i < len(change); i += 2 {
		r.Header.Del(change[i])
		if change[i+1] != "" {
			r.Header.Set(change[i], change[i+1])
		}
	}
	return r
}

var (
	byConnection = fingerprint.Signals{Addr: netip.MustParseAddr(ourEdge), UserAgent: agent}
	byCloudFront = fingerprint.Signals{Addr: netip.MustParseAddr(viewer), UserAgent: agent, JA3: ja3, JA4: ja4, TLS: cipher}
)

func TestNewSource(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "hunter2-hunter2", "hunter2 hunter2 hunter2", "hunter2-hunter2-\n", "hunter2-hunter2-\x00", "hunter2-hunter2-ä"} {
		_, err := fingerprint.NewSource([]byte(currentSecret), []byte(bad))
		if err == nil {
			t.Errorf("the secret %q was accepted", bad)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
	// The caller may wipe its copy.
	mine := []byte(currentSecret)
	src, err := fingerprint.NewSource(mine)
	check.OK(t, err)
	clear(mine)
	if got, err := src.Signals(request(fingerprint.OriginSecretHeader, currentSecret)); err != nil || got != byCloudFront {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestProof: CloudFront-* headers count with a right secret, and change nothing
// without.
func TestProof(t *testing.T) {
	t.Parallel()
	both := source(t, currentSecret, previousSecret)
	for _, tt := range []struct {
		name    string
		src     *fingerprint.Source
		secrets []string // values of the header
		want    fingerprint.Signals
	}{
		{"current", both, []string{currentSecret}, byCloudFront},
		{"previous", both, []string{previousSecret}, byCloudFront},
		{"none", both, nil, byConnection},
		{"empty", both, []string{""}, byConnection},
		{"wrong", both, []string{"a-wrong-origin-secret"}, byConnection},
		{"beginning", both, []string{currentSecret[:len(currentSecret)-1]}, byConnection},
		{"longer", both, []string{currentSecret + "x"}, byConnection},
		{"other case", both, []string{strings.ToUpper(currentSecret)}, byConnection},
		{"right twice", both, []string{currentSecret, currentSecret}, byConnection},
		{"right and wrong", both, []string{currentSecret, "x"}, byConnection},
		{"wrong and right", both, []string{"x", currentSecret}, byConnection},
		{"a list", both, []string{currentSecret + "," + previousSecret}, byConnection},
		{"previous after its end", source(t, currentSecret), []string{previousSecret}, byConnection},
		{"no secrets configured", source(t), []string{currentSecret}, byConnection},
		{"no secrets configured, none sent", source(t), nil, byConnection},
		{"no secrets configured, empty sent", source(t), []string{""}, byConnection},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := request()
			r.Header[fingerprint.OriginSecretHeader] = tt.secrets
			if got, err := tt.src.Signals(r); err != nil || got != tt.want {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// TestForgedHeaders: none of what proxies write, and callers may forge, counts,
// with or without CloudFront.
func TestForgedHeaders(t *testing.T) {
	t.Parallel()
	src := source(t, currentSecret)
	for _, name := range []string{"X-Forwarded-For", "X-Real-Ip", "Forwarded", "True-Client-Ip", "Cf-Connecting-Ip", "Client-Ip", "X-Client-Ip", "X-Golambdaproxy-Apigw-Context"} {
		for _, value := range []string{"198.51.100.9", "198.51.100.9, 203.0.113.1", "for=198.51.100.9"} {
			if got, err := src.Signals(request(name, value)); err != nil || got != byConnection {
				t.Errorf("%s: got %+v, %v", name, got, err)
			}
			if got, err := src.Signals(request(name, value, fingerprint.OriginSecretHeader, currentSecret)); err != nil || got != byCloudFront {
				t.Errorf("%s behind CloudFront: got %+v, %v", name, got, err)
			}
		}
	}
	for i := range 100 {
		r := request("CloudFront-Viewer-Address", fmt.Sprintf("198.51.%d.1:443", i), "CloudFront-Viewer-JA4-Fingerprint", fmt.Sprint(i),
			fingerprint.OriginSecretHeader, fmt.Sprintf("a-guess-of-the-secret-%d", i))
		if got, err := src.Signals(r); err != nil || got != byConnection {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
}

func TestViewerAddress(t *testing.T) {
	t.Parallel()
	src := source(t, currentSecret)
	for _, tt := range []struct{ in, want string }{ // want "": refused
		{"198.51.100.10:46532", "198.51.100.10"},
		{"2001:db8::8a2e:370:7334:46532", "2001:db8::8a2e:370:7334"},
		{"2001:0db8:85a3:0000:0000:8a2e:0370:7334:46532", "2001:db8:85a3::8a2e:370:7334"},
		{"2001:db8::1:443", "2001:db8::1"},
		{"2001:db8:1:2:3:4:5:6:65535", "2001:db8:1:2:3:4:5:6"},
		{"::ffff:198.51.100.10:443", "198.51.100.10"},
		{"", ""},
		{"198.51.100.10", ""},
		{"198.51.100.10:", ""},
		{"198.51.100.10:65536", ""},
		{"198.51.100.10:-1", ""},
		{"198.51.100.10:http", ""},
		{"2001:db8:1:2:3:4:5:6", ""}, // no port
		{"[2001:db8::1]:443", ""},
		{"198.51.100.10:443, 198.51.100.11:443", ""},
		{"198.51.100.300:443", ""},
		{"unknown:443", ""},
		{":443", ""},
		{":", ""},
	} {
		t.Run(tt.in, func(t *testing.T) {
			got, err := src.Signals(request(fingerprint.OriginSecretHeader, currentSecret, "CloudFront-Viewer-Address", tt.in))
			if tt.want == "" {
				// Never the edge's own address: all would share it.
				check.Must(t, err != nil && !got.Addr.IsValid(), "got %v, %v", got.Addr, err)
				check.That(t, (len(tt.in) <= 1 || !strings.Contains(err.Error(), tt.in)) && !strings.Contains(err.Error(), ourEdge),
					"the error repeats an address: %v", err)
				return
			}
			check.That(t, err == nil && got.Addr == netip.MustParseAddr(tt.want), "got %v, %v", got.Addr, err)
		})
	}
	t.Run("two", func(t *testing.T) {
		r := request(fingerprint.OriginSecretHeader, currentSecret)
		r.Header.Add("CloudFront-Viewer-Address", "198.51.100.1:1")
		if got, err := src.Signals(r); err == nil {
			t.Errorf("got %v", got.Addr)
		}
	})
}

func TestConnectionUnknown(t *testing.T) {
	t.Parallel()
	r := request()
	for _, remote := range []string{"", "@", "localhost:80"} {
		r.RemoteAddr = remote
		if got, err := source(t).Signals(r); err == nil {
			t.Errorf("%q: got %v", remote, got.Addr)
		}
	}
}

// TestTLS: what the connection has been through does not count.
func TestTLS(t *testing.T) {
	t.Parallel()
	src := source(t, currentSecret)
	for _, tt := range []struct{ in, want string }{
		{"TLSv1.3:TLS_AES_128_GCM_SHA256:fullHandshake", "TLSv1.3:TLS_AES_128_GCM_SHA256"},
		{"TLSv1.3:TLS_AES_128_GCM_SHA256:sessionResumed", "TLSv1.3:TLS_AES_128_GCM_SHA256"},
		{"TLSv1.3:TLS_AES_128_GCM_SHA256:connectionReused", "TLSv1.3:TLS_AES_128_GCM_SHA256"},
		{"TLSv1.2:ECDHE-RSA-AES128-GCM-SHA256", "TLSv1.2:ECDHE-RSA-AES128-GCM-SHA256"},
		{"TLSv1.2", "TLSv1.2"},
		{"", ""},
	} {
		got, err := src.Signals(request(fingerprint.OriginSecretHeader, currentSecret, "CloudFront-Viewer-TLS", tt.in))
		check.That(t, err == nil && got.TLS == tt.want, "%q: got %q, %v", tt.in, got.TLS, err)
	}
}

func TestSignalsAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10_000)
	got, err := source(t, currentSecret).Signals(request(fingerprint.OriginSecretHeader, currentSecret, "User-Agent", long,
		"CloudFront-Viewer-JA3-Fingerprint", long, "CloudFront-Viewer-JA4-Fingerprint", long, "CloudFront-Viewer-TLS", long))
	check.That(t, err == nil && len(got.UserAgent) == 512 && len(got.JA3) == 128 && len(got.JA4) == 128 && len(got.TLS) == 128,
		"got %d, %d, %d and %d bytes, %v", len(got.UserAgent), len(got.JA3), len(got.JA4), len(got.TLS), err)
}

// TestKeysTellNothing: no part of what a caller sends is in what is stored.
func TestKeysTellNothing(t *testing.T) {
	t.Parallel()
	k := keyer(t, secret)
	for _, value := range []string{"", "ABC", "ABCDEFGH", "abcdefghijklmnop", agent} {
		s, err := source(t, currentSecret).Signals(request(fingerprint.OriginSecretHeader, currentSecret, "User-Agent", value, "CloudFront-Viewer-JA4-Fingerprint", value))
		check.OK(t, err)
		keys := network(t, k, s.Addr, noon) + " " + client(t, k, s, noon)
		for _, part := range []string{value, viewer, ja3, ja4, cipher} {
			check.That(t, part == "" || !strings.Contains(strings.ToLower(keys), strings.ToLower(part)), "%s holds %q", keys, part)
		}
	}
}

func FuzzSignals(f *testing.F) {
	for _, seed := range []struct{ remote, secret, viewer, agent, ja4, tls string }{
		{"192.0.2.1:0", currentSecret, "198.51.100.1:1", agent, ja4, cipher + ":sessionResumed"},
		{"192.0.2.1", "", "2001:db8::1:443", "", "", ""},
		{"[2001:db8::1]:443", previousSecret, "fe80::1%z:1", "\xff", "::::", ":"},
		{"", currentSecret, "::1", "x", ":", "::"},
		{"::", currentSecret, ":", "\x00", "", ":::"},
	} {
		f.Add(seed.remote, seed.secret, seed.viewer, seed.agent, seed.ja4, seed.tls)
	}
	k, src, none := keyer(f, secret), source(f, currentSecret, previousSecret), source(f)
	f.Fuzz(func(t *testing.T, remote, originSecret, viewer, agent, ja4, tls string) {
		r := request("User-Agent", agent, "X-Forwarded-For", viewer)
		r.RemoteAddr = remote
		plain, plainErr := none.Signals(r)
		r.Header["Cloudfront-Viewer-Address"] = []string{viewer}
		r.Header["Cloudfront-Viewer-Ja4-Fingerprint"] = []string{ja4}
		r.Header["Cloudfront-Viewer-Tls"] = []string{tls}
		r.Header[fingerprint.OriginSecretHeader] = []string{originSecret}

		got, err := src.Signals(r)
		check.Must(t, originSecret == currentSecret || originSecret == previousSecret || got == plain && (err == nil) == (plainErr == nil),
			"without proof: %+v, %v; want %+v, %v", got, err, plain, plainErr)
		check.Must(t, (err == nil) == got.Addr.IsValid(), "got %v, %v", got.Addr, err)
		check.Must(t, len(got.UserAgent) <= 512 && len(got.JA3) <= 128 && len(got.JA4) <= 128 && len(got.TLS) <= 128, "unbounded: %+v", got)
		if err != nil {
			if _, err := k.Client(got, noon); err == nil {
				t.Fatal("a key without an address")
			}
			return
		}
		check.Must(t, !got.Addr.Is4In6() && got.Addr.Zone() == "", "got %v", got.Addr)
		key := client(t, k, got, noon)
		check.Must(t, clientShape.MatchString(key), "the key is %q", key)
		if j := k.Jitter(key); j < 0.8 || j > 1.2 {
			t.Fatalf("the jitter is %v", j)
		}
	})
}
