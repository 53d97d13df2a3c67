// Package inbox stands in for SNS and CloudWatch on one machine: it takes what the
// official clients publish and put, and shows it.
//
// It speaks SNS Publish (query protocol) and CloudWatch PutMetricData (RPC v2 CBOR)
// and refuses what the services would refuse of what we send: a subject that is not
// short and plain, a message that is empty or too long. It checks no signatures, so
// it belongs on a loopback address.
package inbox

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	keep    = 1000    // entries of each kind; the oldest go first
	maxBody = 1 << 20 // of a request, in bytes
)

// Message is one that was published.
type Message struct {
	Time       time.Time         `json:"time"`
	Subject    string            `json:"subject"`
	Message    string            `json:"message"`
	Attributes map[string]string `json:"attributes"`
}

// Metric is one value that was put.
type Metric struct {
	Time       time.Time         `json:"time"`
	Namespace  string            `json:"namespace"`
	Name       string            `json:"name"`
	Value      float64           `json:"value"`
	Unit       string            `json:"unit"`
	Dimensions map[string]string `json:"dimensions"`
}

// Inbox keeps what arrived. It is safe for concurrent use.
type Inbox struct {
	now    func() time.Time
	routes *http.ServeMux

	mu      sync.Mutex
	sns     []Message
	metrics []Metric
}

// New makes an empty Inbox.
func New(now func() time.Time) *Inbox {
	b := &Inbox{now: now, routes: http.NewServeMux(), sns: []Message{}, metrics: []Metric{}}
	b.routes.HandleFunc("GET /dev/inbox", b.show)
	b.routes.HandleFunc("POST /{$}", b.publish)
	b.routes.HandleFunc("POST /service/GraniteServiceVersion20100801/operation/PutMetricData", b.putMetricData)
	return b
}

// ServeHTTP serves both services' endpoints, and at GET /dev/inbox all that arrived:
// {"sns":[...],"metrics":[...]}, the oldest first.
func (b *Inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) { b.routes.ServeHTTP(w, r) }

// Messages gives the messages that arrived, the oldest first.
func (b *Inbox) Messages() []Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Message{}, b.sns...)
}

// Metrics gives the values that arrived, the oldest first.
func (b *Inbox) Metrics() []Metric {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Metric{}, b.metrics...)
}

func (b *Inbox) show(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(struct {
		SNS     []Message `json:"sns"`
		Metrics []Metric  `json:"metrics"`
	}{b.Messages(), b.Metrics()})
}

// add appends to entries of which only the last are kept.
func add[T any](b *Inbox, entries *[]T, more ...T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := append(*entries, more...)
	*entries = all[max(0, len(all)-keep):]
}

// readBody reads a body, which the clients compress when it is long.
func readBody(r *http.Request) ([]byte, error) {
	var body io.Reader = http.MaxBytesReader(nil, r.Body, maxBody)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(body)
		if err != nil {
			return nil, err
		}
		body = io.LimitReader(unzipped, maxBody)
	}
	return io.ReadAll(body)
}
