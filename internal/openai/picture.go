package openai

import (
	"bufio"
	"encoding/binary"
	"errors"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"strings"
)

var errHeader = errors.New("a header that is none")

// picture reads of an image what it is, and how many pixels wide and high, and no more than
// it must for that; known is false if it is of no type that providers take. Of an animation
// they take the first frame.
//
// GIF and WebP are read here. Package image/gif tells the screen alone, beyond which a
// frame may reach, and the one for WebP is a module of its own, for 20 lines.
func picture(r io.Reader) (mime string, width, height int, known bool, err error) {
	b := bufio.NewReaderSize(r, 512)
	head, _ := b.Peek(30) // fewer, of a short one
	read := func(decode func(io.Reader) (image.Config, error)) (int, int, error) {
		c, err := decode(b)
		return c.Width, c.Height, err
	}
	is := func(magic string) bool { return strings.HasPrefix(string(head), magic) }
	switch {
	case is("\x89PNG\r\n\x1a\n"):
		mime = "image/png"
		width, height, err = read(png.DecodeConfig)
	case is("\xff\xd8\xff"):
		mime = "image/jpeg"
		width, height, err = read(jpeg.DecodeConfig)
	case is("GIF87a"), is("GIF89a"):
		mime = "image/gif"
		width, height, err = gifSize(b)
	case is("RIFF") && len(head) >= 12 && string(head[8:12]) == "WEBP":
		mime = "image/webp"
		width, height, err = webpSize(head)
	default:
		return "", 0, 0, false, nil
	}
	return mime, width, height, true, err
}

// gifSize is the screen, or as far as the first frame reaches: some make an image of that.
func gifSize(b *bufio.Reader) (width, height int, err error) {
	le := binary.LittleEndian
	var header [13]byte
	if _, err := io.ReadFull(b, header[:]); err != nil {
		return 0, 0, err
	}
	width, height = int(le.Uint16(header[6:])), int(le.Uint16(header[8:]))
	if flags := header[10]; flags&0x80 != 0 { // a table of colours follows
		if _, err := b.Discard(3 << (flags&7 + 1)); err != nil {
			return 0, 0, err
		}
	}
	for {
		kind, err := b.ReadByte()
		switch {
		case err != nil:
			return 0, 0, err
		case kind == ',': // a frame
			var frame [8]byte
			_, err := io.ReadFull(b, frame[:])
			return max(width, int(le.Uint16(frame[0:]))+int(le.Uint16(frame[4:]))), max(height, int(le.Uint16(frame[2:]))+int(le.Uint16(frame[6:]))), err
		case kind != '!': // an extension
			return 0, 0, errHeader
		}
		if _, err := b.Discard(1); err != nil { // what it is
			return 0, 0, err
		}
		for n := byte(1); n > 0; {
			if n, err = b.ReadByte(); err == nil {
				_, err = b.Discard(int(n))
			}
			if err != nil {
				return 0, 0, err
			}
		}
	}
}

// webpSize reads the first chunk: of a simple image, of a lossless one, or of what has more.
func webpSize(head []byte) (width, height int, err error) {
	if len(head) < 25 { // all that a lossless one needs
		return 0, 0, errHeader
	}
	chunk, data := string(head[12:16]), head[20:]
	le := binary.LittleEndian
	const side = 1<<14 - 1 // its bits
	switch whole := len(head) == 30; {
	case whole && chunk == "VP8 " && data[0]&1 == 0 && string(data[3:6]) == "\x9d\x01\x2a":
		return int(le.Uint16(data[6:]) & side), int(le.Uint16(data[8:]) & side), nil
	case chunk == "VP8L" && data[0] == 0x2f:
		bits := le.Uint32(data[1:])
		return int(bits&side) + 1, int(bits>>14&side) + 1, nil
	case whole && chunk == "VP8X":
		return int(le.Uint32(data[4:])&0xffffff) + 1, int(le.Uint32(data[6:])>>8) + 1, nil
	}
	return 0, 0, errHeader
}
