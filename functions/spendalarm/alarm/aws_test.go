package alarm

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/local/stage"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
	"github.com/tokenfuse/tokenfuse/testkit/stagetest"
)

// What SNS and CloudWatch refuse is told in their words, and not tried again. What is lost
// or fails is, as often as a run has time for.
func TestSending(t *testing.T) {
	t.Parallel()
	on := stagetest.New(t, stage.Options{})
	for name, tt := range map[string]struct {
		subject, gauge string
		fault          faults.Fault
		sent           int
		says           string
	}{
		"taken":   {"s", "Dollars", faults.None, 1, ""},
		"refused": {"two\nlines", "", faults.None, 1, "InvalidParameter"},
		"lost":    {"s", "Dollars", faults.LostRequest, tries, faults.ErrLost.Error()},
		"failed":  {"s", "Dollars", faults.ServerError, tries, "InternalServerError"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for what, send := range map[string]func(context.Context, *http.Client) error{
				"SNS, Publish": func(ctx context.Context, c *http.Client) error {
					cfg := on.AWS()
					cfg.HTTPClient = c
					return NewTopic(cfg, stage.TopicARN).Publish(ctx, tt.subject, "m", map[string]string{"event": "opened", "level": "1"})
				},
				"CloudWatch, PutMetricData": func(ctx context.Context, c *http.Client) error {
					cfg := on.AWS()
					cfg.HTTPClient = c
					return NewCloudWatch(cfg, "tokenfuse").Put(ctx, time.Now(), []Gauge{{Name: tt.gauge, Value: 1, Unit: emf.None, Dimension: "Tier", Of: "user"}})
				},
			} {
				sent := 0
				err := send(t.Context(), &http.Client{Transport: &faults.Transport{Plan: func(string, []byte) faults.Fault { sent++; return tt.fault }}})
				check.That(t, (err == nil) == (tt.says == ""), "%s: %v", what, err)
				check.That(t, err == nil || strings.HasPrefix(err.Error(), what+": ") && strings.Contains(err.Error(), tt.says), "%s: %v", what, err)
				check.Equal(t, sent, tt.sent, "%s: requests", what)
			}
		})
	}
}
