package webhook

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// receiver answers each try in its turn; what comes after the last is 200.
type receiver struct {
	answers []func() (*http.Response, error)
	got     []*http.Request
	bodies  []string
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	r.got, r.bodies = append(r.got, req), append(r.bodies, string(body))
	if n := len(r.got) - 1; n < len(r.answers) {
		return r.answers[n]()
	}
	return status(200)()
}

func status(code int, header ...string) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		w := httptest.NewRecorder()
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		return w.Result(), nil
	}
}

func lost() (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

const address = "https://hooks.example.com/services/T0/hidden"

func page() *sns.PublishInput {
	return &sns.PublishInput{Subject: aws.String("tokenfuse ALARM: $12.40"), Message: aws.String("Who spent it:\n  'user#<!channel> & ```'\n"),
		MessageAttributes: map[string]types.MessageAttributeValue{"event": {StringValue: aws.String("opened")}}}
}

func TestPublish(t *testing.T) {
	t.Parallel()
	r := &receiver{}
	w, err := New(address, "a secret")
	check.OK(t, err)
	w.client.Transport, w.now = r, func() time.Time { return time.Unix(1700000000, 0) }
	_, err = w.Publish(t.Context(), page())
	check.OK(t, err)
	var body map[string]string
	check.OK(t, json.Unmarshal([]byte(r.bodies[0]), &body))
	check.Equal(t, body["text"], "*tokenfuse ALARM: $12.40*\n```\nWho spent it:\n  'user#&lt;!channel&gt; &amp; ''''\n```", "the text")
	check.Equal(t, len(body), 1, "Slack may refuse what it does not know")
	req := r.got[0]
	check.That(t, req.Method == http.MethodPost && req.URL.String() == address && req.Header.Get("Content-Type") == "application/json" && req.Header.Get("X-Tokenfuse-Event") == "opened",
		"%s %s %v", req.Method, req.URL, req.Header)
	check.Equal(t, req.Header.Get("X-Tokenfuse-Timestamp"), "1700000000", "the timestamp")
	check.Equal(t, req.Header.Get("X-Tokenfuse-Signature"), "v1="+Sign([]byte("a secret"), "1700000000", []byte(r.bodies[0])), "the signature")
	// By another implementation: printf 'v1:1700000000:{}' | openssl dgst -sha256 -hmac 'a secret'
	check.Equal(t, Sign([]byte("a secret"), "1700000000", []byte("{}")), "2cd57419f397c08674438bdc108449faf8c177c253512fc94d643c7cbca6b56c", "a signature")

	unsigned, err := New(address, "")
	check.OK(t, err)
	unsigned.client.Transport = r
	_, err = unsigned.Publish(t.Context(), page())
	check.OK(t, err)
	check.Equal(t, r.got[1].Header.Get("X-Tokenfuse-Signature"), "", "a signature without a secret")
}

// What may help is tried again, within bounds; what cannot is not, and a redirect is not
// followed. No error tells where pages go.
func TestTries(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answers []func() (*http.Response, error)
		tries   int
		took    time.Duration
		fails   string // "": it does not
	}{
		"at once":             {nil, 1, 0, ""},
		"busy":                {[]func() (*http.Response, error){status(503)}, 2, time.Second, ""},
		"busy, with a time":   {[]func() (*http.Response, error){status(429, "Retry-After", "4")}, 2, 4 * time.Second, ""},
		"busy, for an hour":   {[]func() (*http.Response, error){status(429, "Retry-After", "3600")}, 2, 15 * time.Second, ""},
		"a lost reply":        {[]func() (*http.Response, error){lost, status(500)}, 3, 3 * time.Second, ""},
		"down":                {[]func() (*http.Response, error){status(500), status(502), status(503), status(200)}, 3, 3 * time.Second, "try 3: answered 503"},
		"refused":             {[]func() (*http.Response, error){status(403)}, 1, 0, "answered 403"},
		"no such webhook":     {[]func() (*http.Response, error){status(404)}, 1, 0, "answered 404"},
		"a redirect":          {[]func() (*http.Response, error){status(307, "Location", "https://elsewhere.example.com/")}, 1, 0, "answered 307"},
		"the time is up":      {[]func() (*http.Response, error){lost, lost, lost}, 3, 3 * time.Second, "unexpected EOF"},
		"no time for another": {[]func() (*http.Response, error){status(429, "Retry-After", "3600"), status(429, "Retry-After", "3600"), status(429)}, 3, 30 * time.Second, "answered 429"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &receiver{answers: tt.answers}
				w, err := New(address, "")
				check.OK(t, err)
				w.client.Transport = r
				begun := time.Now()
				_, err = w.Publish(t.Context(), page())
				check.That(t, len(r.got) == tt.tries && time.Since(begun) == tt.took, "%d tries in %v", len(r.got), time.Since(begun))
				check.That(t, (err == nil) == (tt.fails == ""), "%v", err)
				check.That(t, err == nil || strings.Contains(err.Error(), tt.fails) && !strings.Contains(err.Error(), "hidden"), "%v", err)
			})
		})
	}
	t.Run("a context that ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := &receiver{answers: []func() (*http.Response, error){status(503), status(503)}}
			w, err := New(address, "")
			check.OK(t, err)
			w.client.Transport = r
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			begun := time.Now()
			_, err = w.Publish(ctx, page())
			check.That(t, err != nil && len(r.got) == 2 && time.Since(begun) == 2*time.Second, "%d tries in %v: %v", len(r.got), time.Since(begun), err)
		})
	})
}

func TestWrongAddresses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "hooks.example.com/hidden", "ftp://hooks.example.com/hidden", "https:///hidden", "https://a b/hidden", "://hidden"} {
		if _, err := New(address, ""); err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// A page's foreign text cannot leave its block, link or mention anybody, and says what it
// said.
func FuzzText(f *testing.F) {
	f.Add("[tokenfuse] 9 USD", "user#<!channel> ```\n<https://evil.example|click>\n")
	f.Add("&lt;", "````````")
	f.Add("``", "`\n")
	f.Fuzz(func(t *testing.T, subject, message string) {
		got := text(subject, message)
		check.That(t, !strings.ContainsAny(got, "<>") && strings.Count(got, "```") == 2, "%q", got)
		inner, ok := strings.CutPrefix(got, "*")
		check.Must(t, ok && strings.HasSuffix(inner, "\n```"), "%q", got)
		_, shown, _ := strings.Cut(strings.TrimSuffix(inner, "\n```"), "*\n```\n")
		back := strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(shown)
		check.That(t, strings.Contains(subject, "*\n") || back == strings.ReplaceAll(strings.TrimRight(message, "\n"), "```", "'''"), "%q was shown as %q", message, shown)
	})
}
