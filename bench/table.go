package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

// table is the figures of one measurement.
type table struct {
	Title   string   `json:"title"`
	Columns []column `json:"columns"`
	Rows    []row    `json:"rows"`
}

// column says what a figure is, and how many decimals of it mean something.
type column struct {
	Name     string `json:"name"`
	Decimals int    `json:"-"`
}

// row is the figures of one case, a value for each column.
type row struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
	Goal   *goal     `json:"goal,omitempty"`
}

// goal is what some of a row's figures should be.
type goal struct {
	Is      relation `json:"is"`
	Value   float64  `json:"value"`
	Columns []int    `json:"columns"` // indices
	Met     bool     `json:"met"`
}

type relation string

const (
	atMost  relation = "<="
	atLeast relation = ">="
	exactly relation = "="
)

// add appends a row without a goal.
func (t *table) add(name string, values ...float64) {
	t.Rows = append(t.Rows, row{Name: name, Values: values})
}

// expect sets a goal for columns of the last row; none means its last column.
func (t *table) expect(is relation, value float64, columns ...int) {
	r := &t.Rows[len(t.Rows)-1]
	if len(columns) == 0 {
		columns = []int{len(r.Values) - 1}
	}
	r.Goal = &goal{Is: is, Value: value, Columns: columns, Met: true}
	for _, c := range columns {
		r.Goal.Met = r.Goal.Met && is.holds(r.Values[c], value)
	}
}

func (r relation) holds(figure, value float64) bool {
	switch r {
	case atMost:
		return figure <= value
	case atLeast:
		return figure >= value
	default:
		return figure == value
	}
}

func (t *table) print(w io.Writer) {
	fmt.Fprintln(w, t.Title)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	widest := 0
	for _, r := range t.Rows {
		widest = max(widest, len(r.Name))
	}
	// The first column stands left: padded here, since the writer aligns right.
	line := func(name string, cells []string) {
		fmt.Fprintf(tw, "  %-*s\t%s\t\n", widest, name, strings.Join(cells, "\t"))
	}
	head := make([]string, len(t.Columns)+1)
	for i, c := range t.Columns {
		head[i] = c.Name
	}
	head[len(t.Columns)] = "goal"
	line("", head)
	for _, r := range t.Rows {
		cells := make([]string, len(t.Columns)+1)
		for i, v := range r.Values {
			cells[i] = fmt.Sprintf("%.*f", t.Columns[i].Decimals, v)
		}
		cells[len(t.Columns)] = r.Goal.String()
		line(r.Name, cells)
	}
	_ = tw.Flush()
}

func (g *goal) String() string {
	switch {
	case g == nil:
		return ""
	case g.Met:
		return fmt.Sprintf("%s %g met", g.Is, g.Value)
	}
	return fmt.Sprintf("%s %g MISSED", g.Is, g.Value)
}

// report is all that a run has measured.
type report struct {
	Time   time.Time  `json:"time"`
	Go     string     `json:"go"`
	System string     `json:"system"`
	CPUs   int        `json:"cpus"`
	Topics []measured `json:"topics"`
}

type measured struct {
	Name   string  `json:"name"`
	Tables []table `json:"tables"`
}

func newReport() *report {
	return &report{Time: time.Now().UTC(), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU()}
}

func (r *report) goals() (met, goals int) {
	for _, m := range r.Topics {
		for _, t := range m.Tables {
			for _, row := range t.Rows {
				if row.Goal == nil {
					continue
				}
				goals++
				if row.Goal.Met {
					met++
				}
			}
		}
	}
	return met, goals
}

func (r *report) write(file string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
