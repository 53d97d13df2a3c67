// Package webhook sends pages to an address of the owner's, in the form that Slack's
// incoming webhooks take, where there is no SNS: Slack, Mattermost, Discord (at /slack) and
// receivers of one's own read it.
//
// Guarantees: a page is sent at most tries times, within its context; what was taken is
// not sent again, unless its answer was lost. A redirect is not followed: the address is
// the owner's, another one is not. No error has the address beyond its host, since
// whoever knows it can write there.
//
// Trusted: the address and the secret.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sns"
)

const (
	tries   = 3
	tryTime = 10 * time.Second
	// firstWait is before the second try; each further wait is twice as long.
	firstWait = time.Second
	// maxWait is the most that is waited for a receiver that says when to come again.
	maxWait = 15 * time.Second
)

// Webhook takes pages in SNS's place.
type Webhook struct {
	url    string
	secret []byte // empty: pages are not signed
	client *http.Client
	now    func() time.Time
}

// New makes a Webhook of an address, http or https, and of a secret by which pages are
// signed; "": they are not.
func New(address, secret string) (*Webhook, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("the address of the webhook must begin with https:// or http://") // it is not shown: it is a secret
	}
	return &Webhook{url: address, secret: []byte(secret), now: time.Now, client: &http.Client{
		Timeout:       tryTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Publish sends a page: its subject and its message are the text, its attribute "event" a
// header.
func (w *Webhook) Publish(ctx context.Context, in *sns.PublishInput, _ ...func(*sns.Options)) (*sns.PublishOutput, error) {
	body, err := json.Marshal(map[string]string{"text": text(*in.Subject, *in.Message)})
	if err != nil {
		return nil, err
	}
	var event string
	if a, ok := in.MessageAttributes["event"]; ok && a.StringValue != nil {
		event = *a.StringValue
	}
	wait := firstWait
	for try := 1; ; try++ {
		again, after, err := w.send(ctx, body, event)
		if err == nil {
			return &sns.PublishOutput{}, nil
		}
		if !again || try == tries {
			return nil, fmt.Errorf("webhook, try %d: %w", try, err)
		}
		timer := time.NewTimer(min(max(wait, after), maxWait))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("webhook, try %d: %w", try, err)
		}
		wait *= 2
	}
}

// text is a page as Slack shows it as it is: without marks of its own in foreign text, and
// in columns.
func text(subject, message string) string {
	plain := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "```", "'''").Replace
	return "*" + plain(subject) + "*\n```\n" + plain(strings.TrimRight(message, "\n")) + "\n```"
}

// send sends a page once, signed anew: a receiver may refuse old signatures. again
// reports whether another try may help, after says when at the soonest.
func (w *Webhook) send(ctx context.Context, body []byte, event string) (again bool, after time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return false, 0, errors.New("the address cannot be called")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "tokenfuse")
	req.Header.Set("X-Tokenfuse-Event", event)
	if len(w.secret) > 0 {
		timestamp := strconv.FormatInt(w.now().Unix(), 10)
		req.Header.Set("X-Tokenfuse-Timestamp", timestamp)
		req.Header.Set("X-Tokenfuse-Signature", "v1="+Sign(w.secret, timestamp, body))
	}
	res, err := w.client.Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // the rest of it repeats the address
	}
	if err != nil {
		return ctx.Err() == nil, 0, err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // so that the connection can be used again
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return false, 0, nil
	}
	if seconds, err := strconv.ParseUint(res.Header.Get("Retry-After"), 10, 16); err == nil {
		after = time.Duration(seconds) * time.Second
	}
	again = res.StatusCode >= 500 || res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusRequestTimeout
	return again, after, fmt.Errorf("answered %d", res.StatusCode)
}

// Sign is the signature of a page, in hex: HMAC-SHA256 of "v1:", the timestamp in Unix
// seconds, a colon and the body.
func Sign(secret []byte, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write([]byte("v1:" + timestamp + ":"))
	_, _ = mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}
