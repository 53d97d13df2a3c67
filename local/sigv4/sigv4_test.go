package sigv4

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const (
	testKey    = "AKIDEXAMPLE"
	testSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	testARN    = "arn:aws:iam::123456789012:user/support"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func lookup(id string) (secret, arn string, ok bool) { return testSecret, testARN, id == testKey }

// sign makes a request, signed by AWS's own signer, as a server would get it.
func sign(t testing.TB, method, target, body string, edit ...func(*http.Request)) *http.Request {
	t.Helper()
	r, err := http.NewRequest(method, "http://127.0.0.1:8787"+target, strings.NewReader(body))
	check.OK(t, err)
	r.Header.Set("Content-Type", "application/json")
	for _, f := range edit {
		f(r)
	}
	credentials := aws.Credentials{AccessKeyID: testKey, SecretAccessKey: testSecret}
	check.OK(t, v4.NewSigner().SignHTTP(t.Context(), credentials, r, hexHash([]byte(body)), "execute-api", "eu-central-1", noon))
	return r
}

// received sends a request and gives what the server got of it.
func received(t testing.TB, r *http.Request) (*http.Request, []byte) {
	t.Helper()
	var wire bytes.Buffer
	check.OK(t, r.Write(&wire))
	got, err := http.ReadRequest(bufio.NewReader(&wire))
	check.OK(t, err)
	body, err := io.ReadAll(got.Body)
	check.OK(t, err)
	return got, body
}

func TestSignedByTheSDK(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ method, target, body string }{
		{"GET", "/", ""},
		{"GET", "", ""},
		{"GET", "/admin/limits?user=123", ""},
		{"GET", "/admin/limits?email=a%2Bb%40example.com&z=2&z=1&a", ""},
		{"GET", "/admin/limits?email=a+b&x=%C3%BC%7E*'()", ""},
		{"POST", "/prod/admin/limits/clear", `{"user":"123","type":"all"}`},
		{"PUT", "/admin/a%2Fb/%20c/d:e", "x"},
		{"DELETE", "/grüße/100%25", "\x00\xff"},
	} {
		t.Run(test.method+" "+test.target, func(t *testing.T) {
			r, body := received(t, sign(t, test.method, test.target, test.body, func(r *http.Request) {
				r.Header.Set("X-Spaces", "  a   b \t c ")
				r.Header["X-Several"] = []string{"1 ", "2"}
				r.Header.Set("X-Amz-Security-Token", "token")
			}))
			if arn, err := Verify(r, body, lookup, noon.Add(time.Minute)); err != nil || arn != testARN {
				t.Errorf("%q, %v", arn, err)
			}
		})
	}
}

// By http.Server, whose requests differ from those that are made by hand.
func TestThroughServer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		check.That(t, err == nil, "%v", err)
		arn, err := Verify(r, body, lookup, noon)
		check.That(t, err == nil, "%v", err)
		_, _ = io.WriteString(w, arn)
	}))
	t.Cleanup(server.Close)
	r := sign(t, "POST", "/admin/limits/clear?a=1", `{"user":"123"}`)
	r.Host, r.URL.Host = r.URL.Host, strings.TrimPrefix(server.URL, "http://")
	res, err := http.DefaultClient.Do(r)
	check.OK(t, err)
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); string(body) != testARN || err != nil {
		t.Errorf("%q, %v", body, err)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	replace := func(old, by string) func(*http.Request) {
		return func(r *http.Request) {
			a := r.Header.Get("Authorization")
			if !strings.Contains(a, old) {
				panic(a)
			}
			r.Header.Set("Authorization", strings.Replace(a, old, by, 1))
		}
	}
	for name, test := range map[string]struct {
		change func(*http.Request)
		want   error
	}{
		"no signature":          {func(r *http.Request) { r.Header.Del("Authorization") }, ErrUnsigned},
		"a bearer token":        {header("Authorization", "Bearer abc"), ErrUnsigned},
		"two signatures":        {func(r *http.Request) { r.Header.Add("Authorization", r.Header.Get("Authorization")) }, ErrUnsigned},
		"another algorithm":     {replace("SHA256", "SHA1"), ErrUnsigned},
		"unknown key":           {replace(testKey, "AKIDOTHER"), ErrUnknownKey},
		"another region":        {replace("eu-central-1", "us-east-1"), ErrMismatch},
		"no region":             {replace("/eu-central-1/", "//"), ErrMalformed},
		"another service":       {replace("execute-api", "s3"), ErrMalformed},
		"another scope":         {replace("aws4_request", "aws4"), ErrMalformed},
		"scope of another day":  {replace("20261130", "20261129"), ErrMalformed},
		"host not signed":       {replace(";host;", ";"), ErrMalformed},
		"a header not signed":   {replace("content-type;", ""), ErrMismatch},
		"x-amz-date not signed": {replace(";x-amz-date", ""), ErrMalformed},
		"an x-amz header added": {header("X-Amz-User", "root"), ErrMalformed},
		"capitals":              {replace("content-type", "Content-Type"), ErrMalformed},
		"not sorted":            {replace("host;x-amz-date", "x-amz-date;host"), ErrMalformed},
		"signed twice":          {replace("host;", "host;host;"), ErrMalformed},
		"a signed header gone":  {func(r *http.Request) { r.Header.Del("Content-Type") }, ErrMalformed},
		"no signature part":     {replace(", Signature=", ", Sign="), ErrMalformed},
		"a part twice":          {replace(", Signature=", ", SignedHeaders=host, Signature="), ErrMalformed},
		"short signature":       {replace("Signature=", "Signature=00"), ErrMalformed},
		"no hex": {func(r *http.Request) {
			r.Header.Set("Authorization", r.Header.Get("Authorization")[:100]+strings.Repeat("z", 64))
		}, ErrMalformed},
		"method":                 {func(r *http.Request) { r.Method = "DELETE" }, ErrMismatch},
		"path":                   {func(r *http.Request) { r.URL.Path = "/admin/fuse" }, ErrMismatch},
		"path encoded otherwise": {func(r *http.Request) { r.URL.RawPath = "/admin/limits%2Fclear"; r.URL.Path = "/admin/limits/clear" }, ErrMismatch},
		"query":                  {func(r *http.Request) { r.URL.RawQuery = "user=124" }, ErrMismatch},
		"query added":            {func(r *http.Request) { r.URL.RawQuery += "&type=all" }, ErrMismatch},
		"bad query":              {func(r *http.Request) { r.URL.RawQuery = "user=%zz" }, ErrMalformed},
		"host":                   {func(r *http.Request) { r.Host = "127.0.0.1:1" }, ErrMismatch},
		"header changed":         {header("Content-Type", "text/plain"), ErrMismatch},
		"header twice":           {func(r *http.Request) { r.Header.Add("Content-Type", "text/plain") }, ErrMismatch},
		"time":                   {header("X-Amz-Date", "20261130T120001Z"), ErrMismatch},
		"a fraction of time":     {header("X-Amz-Date", "20261130T120000.5Z"), ErrMalformed},
		"two times":              {func(r *http.Request) { r.Header.Add("X-Amz-Date", "20261130T120000Z") }, ErrMalformed},
		"no time":                {header("X-Amz-Date", "noon"), ErrMalformed},
		"hash of another body":   {header("X-Amz-Content-Sha256", hexHash(nil)), ErrMalformed}, // not signed
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, body := received(t, sign(t, "POST", "/admin/limits/clear?user=123", `{"type":"all"}`))
			test.change(r)
			arn, err := Verify(r, body, lookup, noon)
			check.Must(t, errors.Is(err, test.want) && arn == "", "%q, %v; want %v", arn, err, test.want)
			check.That(t, !strings.Contains(err.Error(), testSecret), "the error has the secret: %v", err)
		})
	}
	t.Run("body", func(t *testing.T) {
		t.Parallel()
		r, _ := received(t, sign(t, "POST", "/admin/limits/clear", `{"type":"all"}`))
		if _, err := Verify(r, []byte(`{"type":"cv"}`), lookup, noon); !errors.Is(err, ErrMismatch) {
			t.Error(err)
		}
	})
	t.Run("another secret", func(t *testing.T) {
		t.Parallel()
		r, body := received(t, sign(t, "GET", "/", ""))
		other := func(string) (string, string, bool) { return "another", testARN, true }
		if _, err := Verify(r, body, other, noon); !errors.Is(err, ErrMismatch) {
			t.Error(err)
		}
	})
}

func TestSentHash(t *testing.T) {
	t.Parallel()
	for hash, want := range map[string]error{hexHash([]byte("x")): nil, hexHash([]byte("y")): ErrMismatch, "UNSIGNED-PAYLOAD": ErrMismatch} {
		r, body := received(t, sign(t, "POST", "/", "x", func(r *http.Request) { r.Header.Set("X-Amz-Content-Sha256", hash) }))
		if _, err := Verify(r, body, lookup, noon); !errors.Is(err, want) {
			t.Errorf("%s: %v", hash, err)
		}
	}
}

func TestWindow(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]error{
		0: nil, Window: nil, -Window: nil, Window + time.Second: ErrExpired, -Window - time.Second: ErrExpired, 24 * time.Hour: ErrExpired,
	} {
		r, body := received(t, sign(t, "GET", "/", ""))
		if _, err := Verify(r, body, lookup, noon.Add(age)); !errors.Is(err, want) {
			t.Errorf("%s old: %v, want %v", age, err, want)
		}
	}
}

// Whatever comes as a signature, nobody gets in without the secret.
func FuzzAuthorization(f *testing.F) {
	f.Add(sign(f, "GET", "/admin/limits?user=1", "").Header.Get("Authorization"), "20261130T120000Z", "user=1")
	f.Add("AWS4-HMAC-SHA256 Credential=////,SignedHeaders=;;,Signature=", "", "%")
	f.Fuzz(func(t *testing.T, authorization, date, query string) {
		r := httptest.NewRequest("GET", "/admin/limits", nil)
		r.URL.RawQuery = query
		r.Header.Set("Authorization", authorization)
		r.Header.Set("X-Amz-Date", date)
		other := func(string) (string, string, bool) { return "another secret", testARN, true }
		if arn, err := Verify(r, nil, other, noon); err == nil || arn != "" {
			t.Errorf("%q got in with %q", arn, authorization)
		}
	})
}
