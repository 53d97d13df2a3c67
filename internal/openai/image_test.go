package openai

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// drawn is an image of this size, encoded.
func drawn(t testing.TB, width, height int, encode func(io.Writer, image.Image) error) []byte {
	t.Helper()
	var b bytes.Buffer
	check.OK(t, encode(&b, image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{color.Black})))
	return b.Bytes()
}

func asJPEG(w io.Writer, i image.Image) error { return jpeg.Encode(w, i, nil) }
func asGIF(w io.Writer, i image.Image) error  { return gif.Encode(w, i, nil) }

// riff is the beginning of a WebP with this chunk.
func riff(chunk string, data ...byte) []byte {
	return append([]byte("RIFF\x40\x00\x00\x00WEBP"+chunk+"\x20\x00\x00\x00"), append(data, make([]byte, 32)...)...)
}

// animated is a GIF with a screen, a comment, and a frame of its own size and place.
func animated(width, height, left, top, frameWidth, frameHeight uint16) []byte {
	b := []byte("GIF89a")
	for _, n := range []uint16{width, height} {
		b = binary.LittleEndian.AppendUint16(b, n)
	}
	b = append(b, 0x80, 0, 0, 1, 2, 3, 4, 5, 6) // two colours
	b = append(b, "!\xfe\x02hi\x01,\x00,"...)
	for _, n := range []uint16{left, top, frameWidth, frameHeight} {
		b = binary.LittleEndian.AppendUint16(b, n)
	}
	return append(b, 0, 2)
}

func dataURL(label string, content []byte) string {
	return "data:" + label + ";base64," + base64.StdEncoding.EncodeToString(content)
}

// withImage is a request with one image.
func withImage(url string) string {
	return `{"model":"open","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + url + `"}}]}]}`
}

// What an image is, and how large, is said by its content.
func TestImagesByContent(t *testing.T) {
	t.Parallel()
	withProfile := append([]byte("\xff\xd8\xff\xe2\xff\xff"+strings.Repeat("p", 65533)), drawn(t, 40, 30, asJPEG)[2:]...)
	for name, tt := range map[string]struct {
		content       []byte
		mime          string
		width, height int
	}{
		"PNG":                        {drawn(t, 31, 17, png.Encode), "image/png", 31, 17},
		"JPEG":                       {drawn(t, 640, 480, asJPEG), "image/jpeg", 640, 480},
		"JPEG with 64 KiB before":    {withProfile, "image/jpeg", 40, 30},
		"GIF":                        {drawn(t, 9, 1000, asGIF), "image/gif", 9, 1000},
		"GIF of 1987":                {append([]byte("GIF87a"), animated(5, 4, 0, 0, 5, 4)[6:]...), "image/gif", 5, 4},
		"GIF, a frame in its screen": {animated(100, 90, 10, 10, 20, 20), "image/gif", 100, 90},
		"GIF, a frame beyond it":     {animated(1, 1, 100, 200, 3000, 4000), "image/gif", 3100, 4200},
		"WebP":                       {riff("VP8 ", 0x10, 0, 0, 0x9d, 0x01, 0x2a, 0x20, 0x43, 0xe0, 0x01), "image/webp", 800, 480}, // with a scale in the upper bits
		"WebP, lossless":             {riff("VP8L", 0x2f, 0x1f, 0xc3, 0x77, 0x00), "image/webp", 800, 480},
		"WebP, extended":             {riff("VP8X", 0x12, 0, 0, 0, 0x0f, 0x27, 0, 0x0f, 0x0a, 0), "image/webp", 10000, 2576},
		"widest":                     {animated(16384, 2197, 0, 0, 1, 1), "image/gif", 16384, 2197}, // 35,995,648 pixels
		"largest":                    {animated(6000, 6000, 0, 0, 1, 1), "image/gif", 6000, 6000},
	} {
		right := dataURL(tt.mime, tt.content)
		for _, label := range []string{tt.mime, "", "image/svg+xml", "text/html;charset=utf-8", strings.ToUpper(tt.mime)} {
			got := parsed(t, withImage(dataURL(label, tt.content))).Messages[0].Images
			check.Diff(t, cmp.Diff([]Image{{URL: right, Type: tt.mime, Width: tt.width, Height: tt.height}}, got), "%s, called %s", name, label)
		}
		for _, url := range []string{strings.Replace(right, "data:", "DATA:", 1), strings.Replace(right, "base64", "Base64", 1), strings.ReplaceAll(right, "/", `\/`)} {
			check.Equal(t, parsed(t, withImage(url)).Messages[0].Images[0].URL, right, "%s", name)
		}
	}
}

// What is no image, or too large a one, is refused; so is one that ends within its header.
func TestNoImages(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		content []byte
		says    string
	}{
		"nothing":             {nil, "is no PNG, JPEG, GIF or WebP"},
		"a sound":             {[]byte("RIFF\x40\x00\x00\x00WAVEfmt " + strings.Repeat("\x00", 40)), "is no PNG, JPEG, GIF or WebP"},
		"a PDF":               {[]byte("%PDF-1.7" + strings.Repeat(" ", 40)), "is no PNG, JPEG, GIF or WebP"},
		"too wide":            {animated(16385, 1, 0, 0, 1, 1), "has 16385 × 1 pixels"},
		"too high":            {animated(1, 1, 0, 16384, 1, 1), "has 1 × 16385 pixels"},
		"too many":            {animated(6001, 6000, 0, 0, 1, 1), "has 6001 × 6000 pixels"},
		"16 million wide":     {riff("VP8X", 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), "has 16777216 × 16777216 pixels"},
		"no pixels":           {animated(0, 10, 0, 0, 0, 10), "header cannot be read"},
		"GIF without frame":   {append(animated(1, 1, 0, 0, 1, 1)[:19], ';'), "header cannot be read"},
		"WebP of a new kind":  {riff("VP9 ", 0), "header cannot be read"},
		"WebP, a later frame": {riff("VP8 ", 0x11, 0, 0, 0x9d, 0x01, 0x2a, 1, 0, 1, 0), "header cannot be read"},
		"PNG, damaged":        {bytes.Replace(drawn(t, 10, 10, png.Encode), []byte{0, 0, 0, 10}, []byte{0, 0, 0, 11}, 1), "header cannot be read"},
	} {
		_, apiErr := ParseChat([]byte(withImage(dataURL("image/png", tt.content))))
		check.That(t, apiErr != nil && apiErr.Code == InvalidValue && apiErr.Param == "messages[0].content[0].image_url.url" && strings.Contains(apiErr.Message, tt.says), "%s: %+v", name, apiErr)
	}
	for _, whole := range [][]byte{drawn(t, 3, 3, png.Encode), drawn(t, 3, 3, asJPEG), animated(3, 3, 0, 0, 3, 3), riff("VP8 ", 0x10, 0, 0, 0x9d, 0x01, 0x2a, 3, 0, 3, 0)[:30], riff("VP8L", 0x2f, 2, 0xc0, 0, 0)[:25]} {
		enough := false
		for n := range len(whole) + 1 {
			_, apiErr := ParseChat([]byte(withImage(dataURL("", whole[:n]))))
			check.That(t, !enough || apiErr == nil, "%d bytes are too few of %.12q, and fewer were not", n, whole)
			enough = apiErr == nil
		}
		check.That(t, enough, "refused: %.12q", whole)
	}
}

func TestRemoteImages(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"https://example.com/a.png", "http://example.com:8080/a b.png?w=1#x", "HTTPS://example.com", "http://localhost/a", "https://[::1]/a", "https://example.com/" + strings.Repeat("a", 2<<10-20)} {
		check.Diff(t, cmp.Diff([]Image{{URL: url}}, parsed(t, withImage(url)).Messages[0].Images), "%s", url)
	}
}

// Text and images keep their order.
func TestPartsInOrder(t *testing.T) {
	t.Parallel()
	show := func(name, more string) string {
		return `{"type":"image_url","image_url":{"url":"https://example.com/` + name + `"` + more + `},"cache_control":{}}`
	}
	const text = `{"type":"text","text":"é<1>"}`
	for content, want := range map[string]Message{
		show("a", "") + "," + text:                              {Content: "é<1>", Images: []Image{{URL: "https://example.com/a"}}},
		text + "," + show("a", `,"detail":null`):                {Content: "é<1>", Images: []Image{{Part: 1, At: 5, URL: "https://example.com/a"}}},
		text + "," + text + "," + show("a", `,"detail":"high"`): {Content: "é<1>é<1>", Images: []Image{{Part: 2, At: 10, URL: "https://example.com/a", Detail: "high"}}},
		show("a", `,"detail":"auto"`) + "," + show("b", `,"detail":"low"`) + "," + text + "," + show("c", ""): {Content: "é<1>", Images: []Image{
			{URL: "https://example.com/a", Detail: "auto"}, {Part: 1, URL: "https://example.com/b", Detail: "low"}, {Part: 3, At: 5, URL: "https://example.com/c"}}},
	} {
		want.Role = "user"
		check.Diff(t, cmp.Diff([]Message{want}, parsed(t, `{"model":"open","messages":[{"role":"user","content":[`+content+`]}]}`).Messages), "%s", content)
	}
}
