package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
)

// The attack is a tenth of one that happened: 41,000 requests within 90 minutes from one
// address, each as long as it may be and legal for a limiter that counts requests. It calls
// itself another browser each time.
const (
	attackRequests = 4100
	attackTime     = 20 * time.Second
	attackInput    = 1900 // characters, below what an anonymous caller may send by default
)

// attack answers POST /dev/attack: it has generate attacked, really, and tells each second
// how it stands, a JSON object a line. There is one at a time, it ends when nobody looks, and
// the built-in model alone is asked: what is spent is nobody's money.
type attack struct {
	functions *generations
	modelURL  string // of the built-in model
	running   sync.Mutex
}

// standing is how the attack stands. Dollars are exact decimals.
type standing struct {
	Seconds  float64        `json:"seconds"`
	Requests int            `json:"requests"`
	Answered int            `json:"answered"`
	Open     int            `json:"open"` // reserved, not settled yet
	Refused  map[string]int `json:"refused"`
	Limiter  string         `json:"limiter_usd"` // what the requests would have cost, let through
	Spent    string         `json:"spent_usd"`   // what the answers have cost, with the worst case of open calls
	Done     bool           `json:"done"`
}

func (a *attack) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !a.running.TryLock() {
		http.Error(w, "an attack is running", http.StatusConflict)
		return
	}
	defer a.running.Unlock()
	now := a.functions.now()
	feature, _ := firstFeatures(now.policy, policy.Anonymous)
	if feature == "" {
		http.Error(w, "anonymous callers have no feature to attack", http.StatusNotFound)
		return
	}
	model := now.policy.Features[feature].Model
	if model.Provider.BaseURL != a.modelURL {
		http.Error(w, "the attack would spend real money: run dev with --fake-provider", http.StatusConflict)
		return
	}
	wave, err := newWave(now.policy, feature)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	tell := func(done bool) {
		_ = json.NewEncoder(w).Encode(wave.standing(done))
		_ = out.Flush()
	}
	chat := a.functions.serve(func(g *generation) http.Handler { return g.chat })
	wave.run(r.Context(), chat, func() { tell(false) })
	tell(true)
}

// wave is an attack under way.
type wave struct {
	prices  price.Table
	body    []byte
	address string
	perCall price.Pico // of a request, let through: its worst case

	start    time.Time
	mu       sync.Mutex
	requests int
	answered int
	refused  map[string]int
	spent    price.Pico
}

func newWave(p *policy.Policy, feature string) (*wave, error) {
	model := p.Features[feature].Model
	output := min(p.Features[feature].MaxOutputTokens, p.Tiers[policy.Anonymous].MaxOutputTokens)
	text := strings.Repeat("What does this document say of that? ", attackInput/37) + "[[long]]"
	// About: what the model is told beside it is not counted here.
	tokenizer, err := tokens.New(model.Tokenizer)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(map[string]any{"model": feature, "messages": []map[string]string{{"role": "user", "content": text}}})
	return &wave{prices: model.Prices, body: body, address: fmt.Sprintf("198.18.%d.7:4711", rand.IntN(256)), // for tests of networks: nobody has it

		perCall: model.Prices.WorstCase(int64(tokenizer.Count(text)), output), refused: map[string]int{}, start: time.Now()}, err
}

// run sends the requests, evenly, tells each second, and waits for those that are open.
func (v *wave) run(ctx context.Context, chat http.Handler, each func()) {
	ctx, cancel := context.WithTimeout(ctx, attackTime)
	defer cancel()
	var all sync.WaitGroup
	seconds := time.NewTicker(time.Second)
	defer seconds.Stop()
	paced := time.NewTicker(20 * time.Millisecond)
	defer paced.Stop()
	for sent := 0; ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-seconds.C:
			each()
		case <-paced.C:
			due := min(attackRequests, int(attackRequests*time.Since(v.start).Seconds()/attackTime.Seconds()))
			for ; sent < due; sent++ {
				all.Go(func() { v.ask(chat) })
			}
		}
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	for {
		select {
		case <-ended:
			return
		case <-seconds.C:
			each()
		}
	}
}

// ask makes a request as a script does that calls itself another browser each time.
func (v *wave) ask(chat http.Handler) {
	v.mu.Lock()
	v.requests++
	v.mu.Unlock()
	// Not the context of whoever looks: what was admitted ends in order.
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://localhost/v1/chat/completions", bytes.NewReader(v.body))
	if err != nil {
		panic(err) // the address is good
	}
	r.RemoteAddr = v.address
	r.RequestURI = r.URL.RequestURI()
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", fmt.Sprintf("Mozilla/5.0 (%x) Chrome/%d", rand.Uint32(), 100+rand.IntN(50)))
	var got answer
	chat.ServeHTTP(&got, r)
	var said struct {
		Usage *struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
		}
		Error struct{ Code string }
	}
	err = json.Unmarshal(got.body.Bytes(), &said)
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case err == nil && said.Usage != nil:
		v.answered++
		v.spent += v.prices.WorstCase(said.Usage.Prompt, said.Usage.Completion)
	case err == nil && said.Error.Code != "":
		v.refused[said.Error.Code]++
	default:
		v.refused[string(openai.ProviderError)]++
	}
}

func (v *wave) standing(done bool) standing {
	v.mu.Lock()
	defer v.mu.Unlock()
	open := v.requests - v.answered
	for _, n := range v.refused {
		open -= n
	}
	return standing{Seconds: time.Since(v.start).Seconds(), Requests: v.requests, Answered: v.answered, Open: open, Refused: maps.Clone(v.refused),
		Limiter: (price.Pico(v.requests) * v.perCall).String(), Spent: (v.spent + price.Pico(open)*v.perCall).String(), Done: done}
}

// answer keeps what a handler answers.
type answer struct {
	header http.Header
	body   bytes.Buffer
}

func (a *answer) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}
func (a *answer) WriteHeader(int)                {}
func (a *answer) Flush()                         {} // who does not flush is taken for gone
func (a *answer) Write(text []byte) (int, error) { return a.body.Write(text) }
