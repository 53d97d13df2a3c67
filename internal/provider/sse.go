package provider

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strings"
)

// eventReader reads the data of server-sent events, as the WHATWG HTML standard
// defines them (section 9.2.6): lines end in LF, CRLF or CR, lines of data are
// joined by LF, comments and other fields are passed over, and an event that the
// stream ends within is dropped. Unlike there
//   - an event with empty data is passed over, too;
//   - data that is a whole JSON object is an event of its own, whether a blank line
//     follows, or another line of data, or the end.
type eventReader struct {
	limited *io.LimitedReader
	r       *bufio.Reader
	largest int    // of a line, and of an event's data
	buf     []byte // the line that is read
	data    []byte // the event's
	begun   bool
	afterCR bool   // the last line ended in CR: an LF right after belongs to it
	failing bool   // the last event's name is "error"
	held    []byte // the first line of data of the next event, where no blank line told of it
	err     error  // how the stream ended after the last event
}

// newEventReader reads at most total bytes of r, and lines and events of at most
// largest bytes.
func newEventReader(r io.Reader, largest int, total int64) *eventReader {
	limited := &io.LimitedReader{R: r, N: total + 1}
	return &eventReader{limited: limited, r: bufio.NewReaderSize(limited, 1<<10), largest: largest}
}

// first passes over a BOM and blanks, of at most the largest line's length, and gives
// the byte after them without taking it.
func (e *eventReader) first() (byte, error) {
	for range e.largest {
		c, _, err := e.r.ReadRune()
		if err != nil {
			return 0, err
		}
		if !strings.ContainsRune(" \t\r\n\ufeff", c) {
			_ = e.r.UnreadRune()
			next, err := e.r.Peek(1)
			return next[0], err
		}
	}
	return 0, errTooLarge
}

// isFieldStart reports whether events may begin with c: with data, event, id, retry or a
// comment.
func isFieldStart(c byte) bool { return strings.IndexByte("deir:", c) >= 0 }

// next waits for the next event and gives its data, which is good until the next call.
// Its failures are the reader's own, io.EOF included, and errTooLarge.
func (e *eventReader) next() ([]byte, error) {
	if e.err != nil {
		return nil, e.err
	}
	data, lines := append(e.data[:0], e.held...), 0
	if e.held != nil {
		e.held, lines = nil, 1
	}
	e.failing = false
	defer func() { e.data = data }()
	for {
		line, err := e.line()
		if err != nil {
			if name, value, _ := bytes.Cut(e.buf, []byte(":")); string(name) == "data" && lines == 0 {
				data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
			}
			if !isWholeObject(data) {
				return nil, err
			}
			e.err = err
			return data, nil
		}
		if len(line) == 0 {
			if len(data) > 0 {
				return data, nil
			}
			lines, e.failing = 0, false
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			e.failing = string(value) == "error"
			continue
		case "data":
		default:
			continue
		}
		if lines > 0 {
			if isWholeObject(data) {
				e.held = append([]byte{}, value...)
				return data, nil
			}
			data = append(data, '\n')
		}
		lines++
		data = append(data, value...)
		if len(data) > e.largest {
			return nil, errTooLarge
		}
	}
}

func isWholeObject(data []byte) bool { return len(data) > 0 && data[0] == '{' && json.Valid(data) }

// line gives the next line without its end. It does not look past the CR of a
// CRLF, which would wait for bytes that may come much later. If it fails, e.buf is what
// there is of the line.
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
