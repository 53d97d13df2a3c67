package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/tokenfuse/tokenfuse/functions/generate/chatapi"
	"github.com/tokenfuse/tokenfuse/internal/count"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
	"github.com/tokenfuse/tokenfuse/internal/secret"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
)

const (
	// liveText asks for more than the cap allows. No two tokenizers count it the same.
	liveText = "Count from one to one thousand, in words, and write nothing else. (数字を英語で; числа словами; अंग्रेज़ी में; ตัวเลข; 🙂)"
	// liveCap is the output cap, in tokens: the least that all models take.
	liveCap = 16
	// liveEnough is how many times the cap is read of an answer that ignores it.
	liveEnough = 4
)

// liveModel is what a call to a model has shown. Problems make the check fail.
type liveModel struct {
	Model    string   `json:"model"`
	Provider string   `json:"provider"`
	ID       string   `json:"id"`
	Counted  int64    `json:"counted_input"`  // by us: exact, or an upper bound
	Exact    bool     `json:"exact"`          // so it should be what is reported
	Reported *int64   `json:"reported_input"` // by the provider; null: nothing was
	Cap      int64    `json:"output_cap"`
	Output   *int64   `json:"reported_output"`
	Finish   string   `json:"finish_reason"`
	USD      *string  `json:"usd"` // by the prices of the configuration
	OK       bool     `json:"ok"`
	Problems []string `json:"problems"`
	Notes    []string `json:"notes"`
}

// live is the part of a check that makes calls.
type live struct {
	AtMost string       `json:"at_most_usd"` // said before the calls are made
	Models []*liveModel `json:"models"`
}

// chosenModels are the models that are to be called, by name.
func (c *checkCommand) chosenModels(p *policy.Policy) ([]*policy.Model, error) {
	var models []*policy.Model
	for _, name := range slices.Sorted(maps.Keys(p.Models)) {
		if len(c.Model) == 0 || slices.Contains(c.Model, name) {
			models = append(models, p.Models[name])
		}
	}
	for _, name := range c.Model {
		if p.Models[name] == nil {
			return nil, fmt.Errorf("--model: there is no model %s in %s", name, c.Config)
		}
	}
	return models, nil
}

// live calls each model once, all at the same time.
func (c *checkCommand) live(ctx context.Context, s streams, p *policy.Policy) (*live, error) {
	models, err := c.chosenModels(p)
	if err != nil {
		return nil, err
	}
	parts, err := liveParts(ctx, p)
	if err != nil {
		return nil, err
	}
	var atMost price.Pico
	all := &live{}
	for _, m := range models {
		t, err := tokens.New(m.Tokenizer)
		if err != nil {
			return nil, err
		}
		counted, most := liveInput(t, m), int64(liveCap)
		if m.Embeds {
			most = 0
		}
		atMost = price.Sum(atMost, m.Prices.WorstCase(counted, most))
		all.Models = append(all.Models, &liveModel{Model: m.Name, Provider: m.Provider.Name, ID: m.ID, Counted: counted, Exact: t.Exact(), Cap: most, Problems: []string{}, Notes: []string{}})
	}
	all.AtMost = atMost.String()
	if !s.json {
		fmt.Fprintf(s.out, "calling %d models once each, which costs $%s at most if they keep to the cap\n", len(models), all.AtMost)
	}
	var calls sync.WaitGroup
	for i, m := range models {
		calls.Go(func() { all.Models[i].try(ctx, parts, m) })
	}
	calls.Wait()
	return all, ctx.Err()
}

// liveInput is how many tokens a call to m has, by t.
func liveInput(t *tokens.Tokenizer, m *policy.Model) int64 {
	of := count.Model{Tokenizer: t, Kind: m.Provider.Kind, ID: m.ID}
	if m.Embeds {
		return of.Text(liveText)
	}
	return of.Base() + of.Message(openai.Message{Content: liveText})
}

// liveParts are what providers are made of: the keys where they are kept, and AWS's
// configuration only if it is needed for one.
func liveParts(ctx context.Context, p *policy.Policy) (chatapi.Parts, error) {
	var cfg aws.Config
	for _, used := range p.Providers {
		if k := used.APIKey; used.Kind == kind.Bedrock || k != nil && k.SSM+k.Secret != "" {
			var err error
			if cfg, err = config.LoadDefaultConfig(ctx); err != nil {
				return chatapi.Parts{}, fmt.Errorf("the AWS configuration cannot be read: %w", err)
			}
			break
		}
	}
	return chatapi.Parts{Secret: secret.NewReader(cfg).Read, AWS: cfg}, nil
}

// try makes the call and says what it has shown.
func (l *liveModel) try(ctx context.Context, parts chatapi.Parts, m *policy.Model) {
	defer func() { l.OK = len(l.Problems) == 0 }()
	ctx, cancel := context.WithTimeout(ctx, m.Provider.Timeout)
	defer cancel()
	calls, err := parts.Provider(ctx, m.Provider)
	if err != nil {
		l.problem("its provider cannot be called: %v", err)
		return
	}
	if m.Embeds {
		l.embed(ctx, calls, m)
		return
	}
	answer, err := calls.Call(ctx, provider.Request{
		Model: m.ID, Messages: []openai.Message{{Role: "user", Content: liveText}}, MaxOutputTokens: liveCap, MaxTokensField: m.MaxTokensField, Stream: m.Stream, Extra: m.Extra,
	})
	if err != nil {
		l.failed(m, err)
		return
	}
	defer answer.Close()
	t, err := tokens.New(m.Tokenizer)
	if err != nil {
		l.problem("%v", err)
		return
	}
	text := t.Running()
	var usage *price.Usage
	for {
		part, err := answer.Next()
		text.Add(part.Content + part.Refusal)
		l.Finish = cmp.Or(part.FinishReason, l.Finish)
		usage = cmp.Or(part.Usage, part.AtLeast, usage)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			l.failed(m, err)
			break
		}
		if text.AtLeast() > liveEnough*liveCap {
			break // it will not end by itself
		}
	}
	l.judge(m, t, text, usage)
}

// embed asks for a vector.
func (l *liveModel) embed(ctx context.Context, p provider.Provider, m *policy.Model) {
	answer, err := provider.Embed(ctx, p, provider.EmbedRequest{Extra: m.Extra,
		EmbeddingRequest: openai.EmbeddingRequest{Model: m.ID, Input: []string{liveText}, EncodingFormat: openai.Base64}})
	if err != nil {
		l.failed(m, err)
	}
	switch usage := answer.Usage; {
	case usage != nil:
		l.Reported, l.USD = &usage.Input, new(m.Prices.Cost(*usage).String())
		l.judgeInput(m, usage.Input)
	case err == nil:
		l.problem("no usage is reported: each call counts as many tokens as we do")
	}
}

func (l *liveModel) problem(format string, args ...any) {
	l.Problems = append(l.Problems, printable(fmt.Sprintf(format, args...)))
}

// failed says what is wrong about a call that failed, and what to look at.
func (l *liveModel) failed(m *policy.Model, err error) {
	e, ok := errors.AsType[*provider.Error](err)
	if !ok {
		l.problem("the call failed: %v", err)
		return
	}
	said := ""
	if e.Code != "" {
		said = " (" + e.Code + ")"
	}
	switch {
	case e.Failure == provider.Unreachable:
		l.problem("the provider cannot be reached: %v; is providers.%s.base_url right?", e.Err, m.Provider.Name)
	case e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden:
		l.problem("the key is refused, or may not call this model: status %d%s", e.Status, said)
	case e.Status == http.StatusNotFound || strings.Contains(e.Code, "model"):
		l.problem("there is no model %s: status %d%s; look at models.%s.id and providers.%s.base_url", m.ID, e.Status, said, m.Name, m.Provider.Name)
	case e.Status == http.StatusTooManyRequests:
		l.problem("too many calls, or no credit: status 429%s", said)
	case e.Status == http.StatusBadRequest && e.Param != "":
		l.problem("the provider does not take %s: status 400%s; look at max_tokens_field, stream_options and extra", e.Param, said)
	case e.Failure == provider.Timeout:
		l.problem("no whole answer within %s", m.Provider.Timeout)
	default:
		l.problem("the call failed: %v%s", e, said)
	}
}

// judge holds an answer against what was counted and what was asked for.
func (l *liveModel) judge(m *policy.Model, t *tokens.Tokenizer, text *tokens.Running, usage *price.Usage) {
	made := int64(text.AtLeast())
	if t.Exact() {
		made = int64(text.Count())
	}
	if usage == nil {
		if len(l.Problems) == 0 {
			l.problem("no usage is reported: each call would count at its worst case")
		}
	} else {
		l.Reported, l.Output, l.USD = &usage.Input, &usage.Output, new(m.Prices.Cost(*usage).String())
		made = max(made, usage.Output)
		l.judgeInput(m, usage.Input)
		if t.Exact() && int64(text.Count()) > usage.Output {
			l.problem("%d tokens of output came and %d are reported", text.Count(), usage.Output)
		}
	}
	switch {
	case made > liveCap:
		l.problem("the output cap is not obeyed: at least %d tokens though %d were allowed; look at models.%s.max_tokens_field", made, liveCap, m.Name)
	case l.Finish == "stop" && len(l.Problems) == 0:
		l.Notes = append(l.Notes, "it ended by itself: the cap was not put to the test")
	}
}

// judgeInput compares what was counted with what is reported.
func (l *liveModel) judgeInput(m *policy.Model, reported int64) {
	if reported == l.Counted || !l.Exact && reported < l.Counted {
		return
	}
	var fitting []string
	for _, name := range tokens.Names() {
		if t, err := tokens.New(name); err == nil && t.Exact() && liveInput(t, m) == reported {
			fitting = append(fitting, name)
		}
	}
	advice := "upper_bound is safe for any model; or does the provider add a prompt of its own?"
	if len(fitting) > 0 {
		advice = strings.Join(fitting, " and ") + " would fit"
	}
	if !l.Exact {
		advice = "does the provider add a prompt of its own?"
	}
	l.problem("the input was counted as %d tokens and is reported as %d: look at models.%s.tokenizer (%s)", l.Counted, reported, l.Model, advice)
}

// write shows a verdict for each model.
func (l *live) write(s streams) {
	var rows [][]string
	shown := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return fmt.Sprint(*n)
	}
	for _, m := range l.Models {
		counted, usd := fmt.Sprint(m.Counted), "-"
		if !m.Exact {
			counted = "<=" + counted
		}
		if m.USD != nil {
			usd = "$" + *m.USD
		}
		verdict := "ok"
		if !m.OK {
			verdict = "PROBLEM"
		}
		rows = append(rows, []string{m.Model, m.ID, counted, shown(m.Reported), fmt.Sprint(m.Cap), shown(m.Output), usd, verdict})
	}
	table(s.out, []string{"MODEL", "ID", "COUNTED", "REPORTED", "CAP", "USED", "COST", "VERDICT"}, rows)
	for _, m := range l.Models {
		for _, said := range append(m.Problems, m.Notes...) {
			fmt.Fprintf(s.out, "%s: %s\n", m.Model, said)
		}
	}
}

// failure is an error if a model has a problem.
func (l *live) failure() error {
	wrong := 0
	for _, m := range l.Models {
		if !m.OK {
			wrong++
		}
	}
	if wrong == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d models have problems", wrong, len(l.Models))
}
