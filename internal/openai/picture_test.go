package openai

import (
	"bytes"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// A picture has the size that Go's own decoders find, and is never taken for smaller than
// what is drawn of it, which would be counted too low.
func FuzzPicture(f *testing.F) {
	for _, seed := range [][]byte{
		drawn(f, 3, 2, png.Encode), drawn(f, 3, 2, asJPEG), drawn(f, 3, 2, asGIF), animated(3, 2, 1, 1, 4, 4), animated(65535, 1, 65535, 65535, 65535, 65535),
		riff("VP8L", 0x2f, 0x1f, 0xc3, 0x77, 0), riff("VP8 ", 0, 0, 0, 0x9d, 1, 0x2a, 3, 0, 2, 0), riff("VP8X", 0, 0, 0, 0, 2, 0, 0, 1, 0, 0),
		[]byte("\xff\xd8\xff\xe1\x00\x02\xff\xc0\x00\x0b\x08\x00\x10\x00\x10\x01\x01\x11\x00"), []byte("GIF89a"), []byte("RIFF\x00\x00\x00\x00WEBP"), {},
	} {
		f.Add(seed)
	}
	decoders := map[string]func([]byte) (image.Config, error){
		"image/png":  func(b []byte) (image.Config, error) { return png.DecodeConfig(bytes.NewReader(b)) },
		"image/jpeg": func(b []byte) (image.Config, error) { return jpeg.DecodeConfig(bytes.NewReader(b)) },
		"image/gif":  func(b []byte) (image.Config, error) { return gif.DecodeConfig(bytes.NewReader(b)) },
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		mime, width, height, known, err := picture(bytes.NewReader(content))
		check.Must(t, known == (mime != "") && (known || err == nil), "%q, %t, %v", mime, known, err)
		check.That(t, width >= 0 && height >= 0, "%d x %d", width, height)
		decode := decoders[mime]
		if decode == nil || err != nil {
			return
		}
		c, decodeErr := decode(content)
		if mime != "image/gif" {
			check.That(t, decodeErr == nil && width == c.Width && height == c.Height, "%s of %d x %d: decoded as %d x %d, %v", mime, width, height, c.Width, c.Height, decodeErr)
			return
		}
		check.That(t, decodeErr != nil || width >= c.Width && height >= c.Height, "a GIF of %d x %d has a screen of %d x %d", width, height, c.Width, c.Height)
		if width*height > 1<<20 || c.Width*c.Height > 1<<20 {
			return
		}
		if first, err := gif.Decode(bytes.NewReader(content)); err == nil {
			reach := first.Bounds().Max
			check.That(t, width >= reach.X && height >= reach.Y, "a GIF of %d x %d has a frame to %v", width, height, reach)
		}
	})
}
