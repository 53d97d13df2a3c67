package provider

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func readEvents(r io.Reader, largest int, total int64) ([]string, error) {
	events := newEventReader(r, largest, total)
	var got []string
	for {
		data, err := events.next()
		if err != nil {
			return got, err
		}
		got = append(got, string(data))
	}
}

func TestEventReader(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"one", "data: a\n\n", []string{"a"}},
		{"two", "data: a\n\ndata: b\n\n", []string{"a", "b"}},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
		{"CR", "data: a\r\rdata: b\r\r", []string{"a", "b"}},
		{"mixed ends", "data: a\r\ndata: b\rdata: c\n\r\ndata: d\n\n", []string{"a\nb\nc", "d"}},
		{"several lines", "data: {\ndata: }\n\n", []string{"{\n}"}},
		{"an empty line of data", "data: a\ndata\ndata: b\n\n", []string{"a\n\nb"}},
		{"no space", "data:a\n\n", []string{"a"}},
		{"only one space is dropped", "data:  a \n\n", []string{" a "}},
		{"colons in data", "data: a: b\n\n", []string{"a: b"}},
		{"comments", ": ping\n\n:\ndata: a\n: ping\n\n", []string{"a"}},
		{"other fields", "event: x\nid: 1\nretry: 2\ndatum: y\ndata: a\n\n", []string{"a"}},
		{"event without data", "event: ping\n\ndata: a\n\n", []string{"a"}},
		{"event with empty data", "data:\n\ndata: a\n\n", []string{"a"}},
		{"BOM", "\ufeffdata: a\n\n", []string{"a"}},
		{"BOM later is no BOM", "data: a\n\n\ufeffdata: b\n\n", []string{"a"}},
		{"field names have a case", "Data: a\n\n", nil},
		{"ends within a line", "data: a\n\ndata: b", []string{"a"}},
		{"ends within an event", "data: a\n\ndata: b\n", []string{"a"}},
		{"blank lines", "\n\r\n\r\ndata: a\n\n\n\n", []string{"a"}},
		// What is whole without a blank line.
		{"objects line by line", "data: {}\ndata: {\"a\":1}\n: ping\ndata: b\n\n", []string{"{}", `{"a":1}`, "b"}},
		{"an object before the end", "data: {}\n", []string{"{}"}},
		{"an object at the end", "data: a\n\ndata: {}", []string{"a", "{}"}},
		{"a part of one at the end", "data: {}\n\ndata: {", []string{"{}"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range []io.Reader{
				strings.NewReader(tt.in),
				iotest.OneByteReader(strings.NewReader(tt.in)),
				iotest.DataErrReader(strings.NewReader(tt.in)),
			} {
				got, err := readEvents(r, 100, 1000)
				check.That(t, err == io.EOF && slices.Equal(got, tt.want), "got %q, %v; want %q, EOF", got, err, tt.want)
			}
		})
	}
}

func TestEventReaderBounds(t *testing.T) {
	long := func(n int) string { return "data: " + strings.Repeat("a", n-len("data: ")) + "\n" }
	for _, tt := range []struct {
		name, in string
		total    int64
		want     error
	}{
		{"longest line", long(100) + "\n", 1000, io.EOF},
		{"longer line", long(101) + "\n", 1000, errTooLarge},
		{"longer line without an end", strings.Repeat("a", 101), 1000, errTooLarge},
		{"longer comment", ":" + strings.Repeat("a", 100) + "\n", 1000, errTooLarge},
		{"event of many lines", strings.Repeat(long(30), 6) + "\n", 1000, errTooLarge},
		{"event of empty lines", strings.Repeat("data\n", 102), 1000, errTooLarge},
		{"many events", strings.Repeat(long(30)+"\n", 10), 320, io.EOF},
		{"one byte more than the total", strings.Repeat(long(30)+"\n", 10), 319, errTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := readEvents(strings.NewReader(tt.in), 100, tt.total); err != tt.want {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestEventReaderDoesNotWaitAfterCR(t *testing.T) {
	r, w := io.Pipe()
	defer r.Close()
	go w.Write([]byte("data: a\r\n\r")) // the LF is late
	data, err := newEventReader(r, 100, 1000).next()
	check.That(t, string(data) == "a" && err == nil, "got %q, %v", data, err)
}

func TestEventReaderPassesFailuresOn(t *testing.T) {
	cut := errors.New("cut")
	r := io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(cut))
	got, err := readEvents(r, 100, 1000)
	check.That(t, err == cut && slices.Equal(got, []string{"a"}), "got %q, %v", got, err)
}

// FuzzEventReader compares with a plain reading of the standard.
func FuzzEventReader(f *testing.F) {
	for _, s := range []string{
		"data: a\n\ndata: b\n\n", "\ufeffdata:a\r\ndata: b\r\r", ": c\n\ndata\n\n", "data: a\n", "data: a\rdata\n\r\n\r",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		const largest = 50
		got, err := readEvents(iotest.HalfReader(strings.NewReader(in)), largest, 1<<20)
		check.Must(t, err == io.EOF || err == errTooLarge, "unexpected failure: %v", err)
		text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(in)
		var want, data []string
		lines := strings.Split(text, "\n")
		lines[0] = strings.TrimPrefix(lines[0], "\ufeff")
		for _, line := range lines[:len(lines)-1] { // the last one has no end and counts only if it is whole
			if line == "" {
				if all := strings.Join(data, "\n"); all != "" {
					want = append(want, all)
				}
				data = nil
			} else if name, value, _ := strings.Cut(line, ":"); name == "data" {
				if all := strings.Join(data, "\n"); isWholeObject([]byte(all)) {
					want, data = append(want, all), nil
				}
				data = append(data, strings.TrimPrefix(value, " "))
			}
		}
		if name, value, _ := strings.Cut(lines[len(lines)-1], ":"); name == "data" && len(data) == 0 {
			data = []string{strings.TrimPrefix(value, " ")}
		}
		if all := strings.Join(data, "\n"); err == io.EOF && isWholeObject([]byte(all)) {
			want = append(want, all)
		}
		check.That(t, err != io.EOF || slices.Equal(got, want), "got %q, want %q", got, want)
		check.That(t, err != errTooLarge || len(got) <= len(want) && slices.Equal(got, want[:len(got)]), "got %q, want a beginning of %q", got, want)
	})
}
