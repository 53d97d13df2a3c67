package lambda

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// quota answers as an AWS service does that has so many requests a second for the
// whole account, and as many at once.
type quota struct {
	next      http.Handler
	perSecond float64

	mu                sync.Mutex
	left              float64
	last              time.Time
	served, throttled int
	first             time.Time
}

func (q *quota) take() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if q.first.IsZero() {
		q.first, q.last, q.left = now, now, q.perSecond
	}
	q.left = min(q.perSecond, q.left+q.perSecond*now.Sub(q.last).Seconds())
	q.last = now
	if q.left < 1 {
		q.throttled++
		return false
	}
	q.left--
	q.served++
	return true
}

func (q *quota) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if q.take() {
		q.next.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	writeJSON(w, http.StatusBadRequest, map[string]string{"__type": "ThrottlingException", "message": "Rate exceeded"})
}

// A flood starts 200 containers at once, and Parameter Store answers 40 requests a
// second: each of them serves, and so does the fuse that is set meanwhile.
func TestBurstOfStarts(t *testing.T) {
	t.Parallel()
	const starts, perSecond = 200, 40
	g := newRig(t, func(g *rig) {
		g.edit = func(yaml string) string {
			return strings.NewReplacer("{env: MODEL_KEY}", "{ssm: /app/model}", "{env: FINGERPRINT_SECRET}", "{ssm: /app/fingerprint}").Replace(yaml)
		}
	})
	store := &quota{perSecond: perSecond, next: secretStore{"/app/model": modelKey, "/app/fingerprint": fingerprintSecret}}
	g.env = append(g.env, "AWS_ENDPOINT_URL_SSM="+g.serve(store))
	program(t, "generate") // built before the clock runs

	var failed, served atomic.Int64
	var all sync.WaitGroup
	for range starts {
		f := g.start("generate")
		all.Go(func() {
			select {
			case <-f.Ready():
			case <-f.Exited():
				if failed.Add(1) == 1 {
					t.Errorf("a start failed: %s", f.Log())
				}
				return
			case <-t.Context().Done():
				return
			}
			if a := whole(t, f.Invoke(event(t, "stage_prefix", "GET", "/v1/models", "", ""), timeout)); a.status == http.StatusOK {
				served.Add(1)
			} else {
				t.Errorf("%d %s", a.status, a.body)
			}
			f.Close() // there are many, and memory is not
		})
	}
	if a := g.admin(g.warm("clearlimit"), "PUT", "/admin/fuse", `{"state":"open"}`); a.status != http.StatusOK {
		t.Errorf("the fuse: %d %s", a.status, a.body)
	}
	all.Wait()
	check.That(t, served.Load() == starts, "%d of %d serve, %d failed to start", served.Load(), starts, failed.Load())
	// It was a burst, and nobody asked more than needed.
	check.That(t, store.served == starts && store.throttled >= starts/2,
		"%d requests were answered and %d throttled: that was no burst of %d", store.served, store.throttled, starts)
	t.Logf("%d answered, %d throttled, the last after %s", store.served, store.throttled, store.last.Sub(store.first).Round(time.Millisecond))
}
