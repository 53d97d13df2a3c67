package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/local/issuer"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// client leaves proxies of the environment aside.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 200}}

// answer is a response with its body read.
type answer struct {
	status int
	header http.Header
	body   string
}

// post posts JSON; a token "" is anonymous.
func post(ctx context.Context, url, token, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return do(req, token)
}

func do(req *http.Request, token string) (*http.Response, error) {
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return client.Do(req)
}

func read(res *http.Response, err error) (answer, error) {
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(body)}, err
}

// question is a chat completion as a test asks for it.
type question struct {
	feature, text string
	most          int // max_tokens
	stream        bool
}

func (q question) body() string {
	body, err := json.Marshal(map[string]any{
		"model": q.feature, "messages": []any{map[string]string{"role": "user", "content": q.text}},
		"max_tokens": q.most, "stream": q.stream, "stream_options": map[string]bool{"include_usage": true},
	})
	if err != nil {
		panic(err)
	}
	if !q.stream {
		return strings.Replace(string(body), `,"stream_options":{"include_usage":true}`, "", 1)
	}
	return string(body)
}

// open asks and gives the response as soon as it begins.
func (d *dev) open(ctx context.Context, token string, q question) (*http.Response, error) {
	return post(ctx, d.url+"/v1/chat/completions", token, q.body())
}

// ask asks and reads the whole answer.
func (d *dev) ask(ctx context.Context, token string, q question) (answer, error) {
	return read(d.open(ctx, token, q))
}

// completion is what a test wants to know of an answer, of either kind.
type completion struct {
	Usage struct {
		Total        int `json:"total_tokens"`
		Output       int `json:"completion_tokens"`
		InputDetails struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		OutputDetails struct {
			Reasoning int `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	}
	Error *wireError
	done  bool // a stream's [DONE], or a whole body
}

type wireError struct {
	Message, Type, Code, Limit string
	RetryAfter                 int    `json:"retry_after_seconds"`
	Requested, Remaining       int    // in the limit's unit
	Upstream                   *int   `json:"upstream_status"`
	ChallengeURL               string `json:"challenge_url"`
}

// completion reads the answer's body, be it a stream or not.
func (a answer) completion() (completion, error) {
	var c completion
	if !strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream") {
		c.done = true
		return c, json.Unmarshal([]byte(a.body), &c)
	}
	lines := bufio.NewScanner(strings.NewReader(a.body))
	for lines.Scan() {
		switch data, ok := strings.CutPrefix(lines.Text(), "data: "); {
		case !ok:
		case data == "[DONE]":
			c.done = true
		default:
			if err := json.Unmarshal([]byte(data), &c); err != nil {
				return c, fmt.Errorf("%w: %s", err, data)
			}
		}
	}
	return c, lines.Err()
}

// complete asks a question that must be answered, and gives the tokens it took.
func (d *dev) complete(t *testing.T, token string, q question) int {
	t.Helper()
	a, err := d.ask(t.Context(), token, q)
	check.OK(t, err)
	c, err := a.completion()
	check.Must(t, err == nil && a.status == http.StatusOK && c.done && c.Usage.Total != 0, "no whole answer: %v: %d %s", err, a.status, a.body)
	return c.Usage.Total
}

// token makes a user's token.
func (d *dev) token(t *testing.T, sub string) string {
	t.Helper()
	if d.issuer != nil {
		token, err := d.issuer.Token(issuer.Claims{Subject: sub, TTL: time.Hour})
		check.OK(t, err)
		return token
	}
	a, err := read(post(t.Context(), d.url+"/dev/token", "", fmt.Sprintf(`{"sub":%q}`, sub)))
	check.OK(t, err)
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(a.body), &made); err != nil || made.Token == "" {
		t.Fatalf("no token: %d %s", a.status, a.body)
	}
	return made.Token
}

// remaining gives what is left of a limit, as the caller sees it.
func (d *dev) remaining(t *testing.T, token, limit string) int {
	t.Helper()
	left, known := d.limits(t, token)[limit]
	check.Must(t, known, "no limit %s", limit)
	return left
}

// limits gives what is left of each, as the caller sees it.
func (d *dev) limits(t *testing.T, token string) map[string]int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+"/v1/limits", nil)
	check.OK(t, err)
	a, err := read(do(req, token))
	check.OK(t, err)
	var view struct {
		Limits []struct {
			Name      string
			Remaining int
		}
	}
	if err := json.Unmarshal([]byte(a.body), &view); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	left := map[string]int{}
	for _, l := range view.Limits {
		left[l.Name] = l.Remaining
	}
	return left
}
