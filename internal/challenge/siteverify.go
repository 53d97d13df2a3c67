package challenge

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// maxResponseBytes bounds a response token. Turnstile's have at most 2,048
	// characters, the others' a few thousand.
	maxResponseBytes = 8 << 10
	// maxAnswerBytes is where a provider's answer is cut, and so spoiled. It has
	// some hundred bytes.
	maxAnswerBytes    = 64 << 10
	siteverifyTimeout = 5 * time.Second
	// maxAge is how long after its time a challenge is still accepted. The
	// providers allow 2 to 5 minutes from the solving, but the time that they tell
	// may be that of the loading.
	maxAge = 10 * time.Minute
)

var siteverifyURLs = map[string]string{
	"turnstile": "https://challenges.cloudflare.com/turnstile/v0/siteverify",
	"hcaptcha":  "https://api.hcaptcha.com/siteverify",
	"recaptcha": "https://www.google.com/recaptcha/api/siteverify",
}

// testSecrets are published by the providers for tests. Some accept everybody.
var testSecrets = map[string]bool{
	"1x0000000000000000000000000000000AA":        true, // Turnstile: accepts
	"2x0000000000000000000000000000000AA":        true, // Turnstile: refuses
	"3x0000000000000000000000000000000AA":        true, // Turnstile: used already
	"0x0000000000000000000000000000000000000000": true, // hCaptcha
	"6LeIxAcTAAAAAGG-vFI1TnRWxMZNFuojJ4WifJWe":   true, // reCAPTCHA
}

// SiteverifyConfig says who verifies.
type SiteverifyConfig struct {
	Kind   string // turnstile, hcaptcha or recaptcha (version 2)
	Secret string
	// SiteKey is told to hCaptcha, whose secret may belong to several sites.
	SiteKey string
	// Hostname is what the challenge must have been solved on; empty: anywhere.
	Hostname string
	// AllowTestSecrets accepts the secrets that providers publish for tests, which
	// accept everybody. Only for development.
	AllowTestSecrets bool
	URL              string // instead of the provider's; empty: the provider's
	Now              func() time.Time
}

// Siteverify lets a third party verify, which issued the challenge as well. It is
// safe for concurrent use.
type Siteverify struct {
	cfg    SiteverifyConfig
	test   bool
	client *http.Client
}

// NewSiteverify checks cfg. It makes no call.
func NewSiteverify(cfg SiteverifyConfig) (*Siteverify, error) {
	provider, ok := siteverifyURLs[cfg.Kind]
	if !ok {
		return nil, fmt.Errorf("challenge: %q is none of turnstile, hcaptcha and recaptcha", cfg.Kind)
	}
	if cfg.URL == "" {
		cfg.URL = provider
	}
	if cfg.Secret == "" {
		return nil, errors.New("challenge: a secret is required")
	}
	test := testSecrets[cfg.Secret]
	if test && !cfg.AllowTestSecrets {
		return nil, fmt.Errorf("challenge: the secret is the one that %s publishes for tests; it accepts everybody", cfg.Kind)
	}
	return &Siteverify{cfg, test, &http.Client{
		Timeout: siteverifyTimeout,
		// The secret is for this address alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// answer is what the providers have in common.
type answer struct {
	Success  *bool           `json:"success"`
	Time     string          `json:"challenge_ts"`
	Hostname string          `json:"hostname"`
	Score    json.RawMessage `json:"score"`
	Codes    []string        `json:"error-codes"`
}

// Verify implements Verifier. The payload is the provider's response token. It is
// asked once, for at most 5 s: it knows a token once only, so a second attempt
// after a lost answer would be refused.
func (v *Siteverify) Verify(ctx context.Context, _, remoteIP, payload string) (Solution, error) {
	if payload == "" {
		return Solution{}, ErrMissing
	}
	if len(payload) > maxResponseBytes {
		return Solution{}, ErrMalformed
	}
	a, err := v.ask(ctx, remoteIP, payload)
	if err != nil {
		return Solution{}, fmt.Errorf("%w: %s: %w", ErrUnavailable, v.cfg.Kind, err)
	}
	if !*a.Success {
		return Solution{}, v.refusal(a.Codes)
	}
	now := v.cfg.Now()
	if v.test {
		// Every test has the same token and a made-up host and time.
		return Solution{ID: rand.Text(), Expires: now.Add(maxAge)}, nil
	}
	// Version 3 succeeds for robots too and gives them a low score. What score is
	// low enough is nothing that we can know.
	if v.cfg.Kind == "recaptcha" && a.Score != nil {
		return Solution{}, fmt.Errorf("%w: recaptcha: the keys are of version 3, but only version 2 refuses anybody", ErrUnavailable)
	}
	solved, err := time.Parse(time.RFC3339, a.Time)
	if err != nil || solved.After(now.Add(maxAge)) { // no clock is that far ahead, and the solution would be kept until then
		return Solution{}, fmt.Errorf("%w: %s: the answer does not say when the challenge was solved", ErrUnavailable, v.cfg.Kind)
	}
	expires := solved.Add(maxAge)
	switch {
	case v.cfg.Hostname != "" && !strings.EqualFold(a.Hostname, v.cfg.Hostname):
		return Solution{}, ErrElsewhere
	case now.After(expires):
		return Solution{}, ErrExpired
	}
	id := sha256.Sum256([]byte(payload))
	return Solution{ID: hex.EncodeToString(id[:]), Expires: expires.Add(clockSkew)}, nil
}

// ask posts the token. An answer has Success.
func (v *Siteverify) ask(ctx context.Context, remoteIP, response string) (answer, error) {
	form := url.Values{"secret": {v.cfg.Secret}, "response": {response}}
	if remoteIP != "" {
		form.Set("remoteip", remoteIP)
	}
	if v.cfg.Kind == "hcaptcha" && v.cfg.SiteKey != "" {
		form.Set("sitekey", v.cfg.SiteKey)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, v.cfg.URL, strings.NewReader(form.Encode()))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := v.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	// A refusal may come with status 400.
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusBadRequest {
		return answer{}, fmt.Errorf("status %d", res.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes))
	if err != nil {
		return answer{}, err
	}
	var a answer
	if json.Unmarshal(body, &a) != nil || a.Success == nil || *a.Success && res.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("status %d with an answer that makes no sense", res.StatusCode)
	}
	return a, nil
}

// refusal turns a provider's error codes into an error. Some say that the fault
// is not the client's.
func (v *Siteverify) refusal(codes []string) error {
	refusal := ErrUnsolved
	for _, code := range codes {
		switch code {
		case "missing-input-secret", "invalid-input-secret", "sitekey-secret-mismatch", "internal-error":
			return fmt.Errorf("%w: %s: %s", ErrUnavailable, v.cfg.Kind, code)
		case "timeout-or-duplicate", "expired-input-response":
			refusal = ErrExpired
		case "already-seen-response", "invalid-or-already-seen-response":
			refusal = ErrUsed
		}
	}
	return refusal
}
