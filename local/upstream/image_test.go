package upstream

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func dataURL(kind string, raw []byte) string {
	return "data:image/" + kind + ";base64," + base64.StdEncoding.EncodeToString(raw)
}

// webp makes a header of one of the three forms, and some bytes more.
func webp(form string, data ...byte) []byte {
	raw := append([]byte("RIFF\x40\x00\x00\x00WEBP"+form+"\x34\x00\x00\x00"), data...)
	return append(raw, make([]byte, 40)...)
}

// The size of a picture is read from its content, whatever its label says, and told in
// the answer, whose tokens stay exact.
func TestImages(t *testing.T) {
	o200k := tokenizer(t)
	picture := image.NewPaletted(image.Rect(0, 0, 640, 480), color.Palette{color.Black, color.White})
	var asPNG, asJPEG, asGIF bytes.Buffer
	check.OK(t, png.Encode(&asPNG, picture))
	check.OK(t, jpeg.Encode(&asJPEG, picture, nil))
	check.OK(t, gif.Encode(&asGIF, picture, nil))
	lossless := binary.LittleEndian.AppendUint32([]byte{0x2f}, (640-1)|(480-1)<<14|1<<28)
	for _, tt := range []struct {
		url    string
		detail string
		size   string
		tokens int
	}{
		{dataURL("png", asPNG.Bytes()), "", "640 x 480", 85 + 2*170},
		{dataURL("png", asPNG.Bytes()), "auto", "640 x 480", 85 + 2*170},
		{dataURL("png", asPNG.Bytes()), "low", "640 x 480", 85},
		{dataURL("jpeg", asJPEG.Bytes()), "high", "640 x 480", 85 + 2*170},
		{dataURL("jpg", asJPEG.Bytes()), "low", "640 x 480", 85},
		{dataURL("gif", asGIF.Bytes()), "low", "640 x 480", 85},
		{dataURL("gif", asPNG.Bytes()), "low", "640 x 480", 85},
		{dataURL("webp", webp("VP8 ", 0, 0, 0, 0x9d, 1, 0x2a, 0x80, 2, 0xe0, 0x41)), "low", "640 x 480", 85},
		{dataURL("webp", webp("VP8L", lossless...)), "low", "640 x 480", 85},
		{dataURL("webp", webp("VP8X", 0, 0, 0, 0, 0x7f, 2, 0, 0xdf, 1, 0)), "low", "640 x 480", 85},
		{"https://example.com/a.png", "", "1024 x 1024", 85 + 4*170},
	} {
		u, url := serve(t, Options{})
		part := fmt.Sprintf(`{"type":"image_url","image_url":{"url":%q}}`, tt.url)
		if tt.detail != "" {
			part = strings.Replace(part, "}}", `,"detail":"`+tt.detail+`"}}`, 1)
		}
		name := tt.url[:20] + tt.detail
		got := complete(t, url, `"max_tokens":200,"messages":[{"role":"user","content":[{"type":"text","text":"What "},`+part+`,{"type":"text","text":"is it?"},`+part+`]}]`, true)
		want := strings.Repeat("There was a picture of "+tt.size+" pixels. ", 2)
		check.That(t, strings.Contains(got.text, want) && got.output == int64(o200k.Count(got.text)) && got.parts == int(got.output), "%s: %+v", name, got)
		check.Equal(t, got.input, int64(3+4+o200k.Count("What is it?")+2*tt.tokens), "%s: input", name)
		calls := u.Calls()
		check.That(t, calls[0].Billed.Input == got.input && calls[0].Messages[0].Content == "What is it?", "%s: %+v", name, calls)
	}
}

// The examples that OpenAI gives for its rules, and their edges.
func TestImagesAreCountedAsOpenAIDoes(t *testing.T) {
	for _, tt := range []struct {
		model         string
		width, height int
		detail        string
		want          int
	}{
		{"gpt-4o", 1024, 1024, "high", 765},
		{"gpt-4o", 2048, 4096, "", 1105},
		{"gpt-4o", 4096, 8192, "low", 85},
		{"gpt-4o", 512, 512, "auto", 255},
		{"gpt-4o", 1, 1, "", 255},
		{"gpt-4o", 513, 512, "", 425},
		{"gpt-4o", 1536, 768, "", 1105},
		{"gpt-4o", 768, 2048, "", 85 + 8*170},
		{"gpt-4o", 9000, 100, "", 85 + 4*170},
		{"gpt-4o", 100000, 1, "", 85 + 4*170},
		{"another", 3000, 3000, "", 765},
		{"gpt-4o-mini-2024-07-18", 1024, 1024, "", 2833 + 4*5667},
		{"gpt-4o-mini", 1024, 1024, "low", 2833},
		{"gpt-4.1", 1024, 1024, "", 765},
		{"gpt-5", 1024, 1024, "", 630},
		{"gpt-5.1", 1024, 1024, "", 630},
		{"o3-pro", 1024, 1024, "low", 75},
		{"computer-use-preview", 1024, 1024, "", 65 + 4*129},
		{"gpt-4.1-mini", 1024, 1024, "", 1659},                // 1024 patches
		{"gpt-4.1-mini-2025-04-14", 1800, 2400, "high", 2353}, // 1452 patches
		{"gpt-4.1-mini", 33, 32, "", 4},
		{"gpt-4.1-mini", 4096, 4096, "low", 415}, // 256 patches
		{"gpt-4.1-nano", 32, 32, "", 3},
		{"o4-mini", 1024, 1024, "", 1762},
		{"gpt-5-nano", 32000, 32, "", 158},   // 64 patches: its side is 2048 pixels then
		{"gpt-5-mini", 6000, 6000, "", 2465}, // 39 x 39 patches
		{"gpt-5.4-mini", 1024, 1024, "", 1659},
		{"gpt-5.2", 1024, 1024, "", 1229},
		{"gpt-5.4", 1600, 1600, "", 3000}, // 2500 patches
		{"gpt-5.4", 6000, 6000, "auto", 3000},
		{"gpt-5.5", 6000, 6000, "high", 3000},
		{"gpt-5.5", 6000, 6000, "", 12_000},
		{"gpt-5.5", 1568, 1568, "", 2882},   // 2401 patches
		{"gpt-5.6", 6000, 6000, "", 42_413}, // 188 x 188 patches
		{"gpt-5.6-mini", 6000, 6000, "high", 3000},
	} {
		check.Equal(t, countImage(tt.model, picture{tt.width, tt.height, tt.detail}), tt.want, "%+v", tt)
	}
}

// What is no picture is refused in OpenAI's words.
func TestImagesAreChecked(t *testing.T) {
	_, url := serve(t, Options{})
	user := func(part string) string { return `{"role":"user","content":[` + part + `]}` }
	of := func(url string) string { return user(`{"type":"image_url","image_url":{"url":"` + url + `"}}`) }
	const (
		at     = "messages[0].content[0]"
		but    = "(e.g. 'data:image/png;base64,aW1nIGJ5dGVzIGhlcmU='), but got "
		format = "You uploaded an unsupported image. Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif', 'webp']."
	)
	for _, tt := range []struct{ message, param, code, says string }{
		{user(`{"type":"input_audio","input_audio":{}}`), at + ".type", "invalid_value", "Invalid value: 'input_audio'. Supported values are: 'text' and 'image_url'."},
		{user(`{"text":"hi"}`), at + ".type", "missing_required_parameter", ""},
		{user(`{"type":"text"}`), at + ".text", "missing_required_parameter", ""},
		{user(`"hi"`), at, "invalid_type", ""},
		{user(`{"type":"text","text":"hi","cache_control":{}}`), at, "invalid_value", ""},
		{user(`{"type":"text","text":"hi","image_url":{"url":"x"}}`), at + ".image_url", "unknown_parameter", ""},
		{user(`{"type":"image_url","text":"hi"}`), at + ".text", "unknown_parameter", ""},
		{user(`{"type":"image_url"}`), at + ".image_url", "missing_required_parameter", ""},
		{user(`{"type":"image_url","image_url":"https://example.com/"}`), at + ".image_url", "invalid_type", ""},
		{of(""), at + ".image_url.url", "missing_required_parameter", ""},
		{user(`{"type":"image_url","image_url":{"url":"https://example.com/","detail":"best"}}`), at + ".image_url.detail", "invalid_value", "'best'"},
		{`{"role":"system","content":[{"type":"image_url","image_url":{"url":"https://example.com/"}}]}`, "messages[0]", "invalid_value",
			"Invalid 'messages[0]'. Image URLs are only allowed for messages with role 'user', but this message with role 'system' contains an image URL."},
		{of("ftp://example.com/a.png"), at + ".image_url.url", "invalid_value", but + "a value without the 'data:' prefix."},
		{of("data:image/png,x"), at + ".image_url.url", "invalid_value", but + "a value without the 'base64' encoding."},
		{of("data:image/svg+xml;base64,eA=="), at + ".image_url.url", "invalid_value", but + "unsupported MIME type 'image/svg+xml'."},
		{of("data:image/png;base64,"), at + ".image_url.url", "invalid_value", but + "empty base64-encoded bytes."},
		{of("data:image/png;base64,%"), at + ".image_url.url", "invalid_value", but + "an invalid base64-encoded value."},
		{of(dataURL("png", []byte("\x89PNG\r\n\x1a\n"))), "", "invalid_image_format", format},
		{of(dataURL("png", []byte("<html>"))), "", "invalid_image_format", format},
		{of(dataURL("webp", webp("VP8 "))), "", "invalid_image_format", format},
		{of(dataURL("webp", webp("VP8L"))), "", "invalid_image_format", format},
		{of(dataURL("webp", webp("ABCD"))), "", "invalid_image_format", format},
		{of(dataURL("webp", webp("VP8X")[:25])), "", "invalid_image_format", format},
		{of(dataURL("png", make([]byte, maxImage+1))), "", "image_too_large", "below 20 MB in size"},
	} {
		status, _, answer := post(t, url, `{"model":"m","max_tokens":9,"messages":[`+tt.message+`]}`)
		param := "null"
		if tt.param != "" {
			param = `"` + tt.param + `"`
		}
		check.That(t, status == 400 && strings.HasSuffix(answer, fmt.Sprintf(`"param":%s,"code":%q}}`, param, tt.code)) && strings.Contains(answer, tt.says),
			"%.200s: status %d, %s", tt.message, status, answer)
	}
}
