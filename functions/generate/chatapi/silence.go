package chatapi

import (
	"net/http"
	"sync"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

const (
	// defaultSilence is well below the shortest idle limit of the hops that are known: 30 s,
	// of edge-optimized APIs of API Gateway and of CloudFront by default.
	defaultSilence = 10 * time.Second

	// waiting is a comment, which clients of server-sent events pass over.
	waiting = ": waiting for the model\n\n"
)

// outlet is where a stream goes out. In silence it sends a comment now and then, the
// headers before the first: hops on the way cut connections on which nothing comes, and a
// model may think for minutes.
//
// Writes come from the handler and, for comments, from a timer: mu keeps them apart.
type outlet struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	begin func() // sets the headers
	leave func() // ends the call of a caller who has left

	mu     sync.Mutex
	every  time.Duration
	timer  *time.Timer // nil: no comments
	last   time.Time   // when something was sent, or the wait began
	begun  bool
	failed bool          // a write has
	held   time.Duration // how long the caller has kept us from writing
}

// keepAlive sends a comment after each time of silence, until quiet. The caller has
// waited for some time already.
func (o *outlet) keepAlive(every, waited time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.every, o.last = every, time.Now().Add(-waited)
	o.timer = time.AfterFunc(every-waited, o.comment)
}

// quiet ends the comments. None is under way when it returns.
func (o *outlet) quiet() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
}

// comment is what the timer does. Only a comment can find out that a caller has left
// who is waiting, where the gateway does not tell.
func (o *outlet) comment() {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch left := o.every - time.Since(o.last); {
	case o.timer == nil: // it was too late to stop it
	case left > 0: // something was sent meanwhile
		o.timer.Reset(left)
	case !o.send([]byte(waiting)):
		o.leave()
	}
}

// event sends one server-sent event; false means that the caller has left or does not
// read.
func (o *outlet) event(data []byte) bool { return o.events(openai.Event(data)) }

// events sends events that are written already.
func (o *outlet) events(written []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.send(written)
}

func (o *outlet) send(p []byte) bool {
	if !o.begun {
		o.begun = true
		o.begin()
	}
	start := time.Now()
	_, err := o.w.Write(p)
	ok := err == nil && o.rc.Flush() == nil
	o.last = time.Now()
	o.held += o.last.Sub(start)
	o.failed = o.failed || !ok
	if o.timer != nil {
		o.timer.Reset(o.every)
	}
	return ok
}

// lost reports whether the caller has left, or has stalled for so long that the answer
// may have failed for that.
func (o *outlet) lost() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed || o.held > stallMargin
}
