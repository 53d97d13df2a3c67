package provider

import (
	"bufio"
	"bytes"
	"io"
)

// eventReader reads the data of server-sent events, as the WHATWG HTML standard
// defines them (section 9.2.6): lines end in LF, CRLF or CR, lines of data are
// joined by LF, comments and other fields are passed over, and an event that the
// stream ends within is dropped. Unlike there, an event with empty data is
// passed over too.
type eventReader struct {
	limited *io.LimitedReader
	r       *bufio.Reader
	largest int // of a line, and of an event's data
	buf     []byte
	begun   bool
	afterCR bool // the last line ended in CR: an LF right after belongs to it
}

// newEventReader reads at most total bytes of r, and lines and events of at most
// largest bytes.
func newEventReader(r io.Reader, largest int, total int64) *eventReader {
	limited := &io.LimitedReader{R: r, N: total + 1}
	return &eventReader{limited: limited, r: bufio.NewReader(limited), largest: largest}
}

// next waits for the next event and gives its data. Its failures are the
// reader's own, io.EOF included, and errTooLarge.
func (e *eventReader) next() ([]byte, error) {
	var data []byte
	lines := 0
	for {
		line, err := e.line()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			if len(data) > 0 {
				return data, nil
			}
			lines = 0
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "data" {
			continue
		}
		if lines > 0 {
			data = append(data, '\n')
		}
		lines++
		data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
		if len(data) > e.largest {
			return nil, errTooLarge
		}
	}
}

// line gives the next line without its end. It does not look past the CR of a
// CRLF, which would wait for bytes that may come much later.
func (e *eventReader) line() ([]byte, error) {
	e.buf = e.buf[:0]
	for {
		c, err := e.r.ReadByte()
		if err == io.EOF && e.limited.N <= 0 {
			err = errTooLarge
		}
		if err != nil {
			return nil, err
		}
		afterCR := e.afterCR
		e.afterCR = c == '\r'
		if c == '\n' && afterCR {
			continue
		}
		if c == '\n' || c == '\r' {
			line := e.buf
			if !e.begun {
				e.begun = true
				line = bytes.TrimPrefix(line, []byte("\ufeff"))
			}
			return line, nil
		}
		if len(e.buf) == e.largest {
			return nil, errTooLarge
		}
		e.buf = append(e.buf, c)
	}
}
