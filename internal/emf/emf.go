// Package emf writes metrics as log lines that CloudWatch turns into metrics by
// itself (Embedded Metric Format), so that a function makes no call for them.
//
// Every combination of dimensions is a metric that has to be paid for. So the names and
// values of dimensions must be few, and no dimension may hold an id.
package emf

import (
	"encoding/json"
	"io"
	"slices"
	"sync"
	"time"
)

// Unit is a CloudWatch unit.
type Unit string

const (
	Count        Unit = "Count"
	Milliseconds Unit = "Milliseconds"
	None         Unit = "None"
)

// Metric is one value.
type Metric struct {
	Name  string
	Unit  Unit
	Value float64
}

// Dimension says what a metric is about.
type Dimension struct{ Name, Value string }

// Group is metrics that share their dimensions.
type Group struct {
	Dimensions []Dimension
	Metrics    []Metric
}

// Writer writes lines. It is safe for concurrent use.
type Writer struct {
	namespace string
	now       func() time.Time
	only      string // a metric without which a line is not written; "": all are

	mu  sync.Mutex
	out io.Writer
}

// New makes a Writer to a function's log.
func New(out io.Writer, namespace string, now func() time.Time) *Writer {
	return &Writer{namespace: namespace, now: now, out: out}
}

// NewOnly makes a Writer that writes no line but those with the metric, and makes no others.
func NewOnly(metric string, out io.Writer, namespace string, now func() time.Time) *Writer {
	return &Writer{namespace: namespace, now: now, out: out, only: metric}
}

// Write writes groups as one line. In a line, each name of a dimension or of a metric
// stands once, so groups may share a dimension only if it has the same value in all of
// them. A line that cannot be written is lost, as other lines of the log are.
func (w *Writer) Write(groups ...Group) {
	type definition struct {
		Name string
		Unit Unit
	}
	type directive struct {
		Namespace  string
		Dimensions [][]string
		Metrics    []definition
	}
	if w.only != "" && !slices.ContainsFunc(groups, w.wanted) {
		return
	}
	line := map[string]any{}
	var directives []directive
	for _, g := range groups {
		if len(g.Metrics) == 0 {
			continue
		}
		d := directive{Namespace: w.namespace, Dimensions: [][]string{{}}}
		for _, dim := range g.Dimensions {
			d.Dimensions[0] = append(d.Dimensions[0], dim.Name)
			line[dim.Name] = dim.Value
		}
		for _, m := range g.Metrics {
			d.Metrics = append(d.Metrics, definition{m.Name, m.Unit})
			line[m.Name] = m.Value
		}
		directives = append(directives, d)
	}
	if len(directives) == 0 {
		return
	}
	line["_aws"] = map[string]any{"Timestamp": w.now().UnixMilli(), "CloudWatchMetrics": directives}
	encoded, err := json.Marshal(line)
	if err != nil {
		return // a value that is no number, such as NaN
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = w.out.Write(append(encoded, '\n'))
}

func (w *Writer) wanted(g Group) bool {
	return slices.ContainsFunc(g.Metrics, func(m Metric) bool { return m.Name == w.only })
}
