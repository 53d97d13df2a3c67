package openai

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
)

// Image is a picture that a user shows to the model.
type Image struct {
	Part   int    // its index among the parts of the message as it was sent
	At     int    // bytes of the message's Content that stand before it
	URL    string // a data URL, whose type is that of its content, or an http(s) URL
	Type   string // of a data URL: image/png, image/jpeg, image/gif or image/webp; "": a remote one
	Detail string // low, high or auto; "": not said
	// Width and Height are its pixels, by the header of its content; 0 of a remote one.
	Width, Height int
}

// What an image may have at most.
const (
	maxSide     = 16384 // pixels
	maxPixels   = 36_000_000
	maxImageURL = 2 << 10 // bytes of the address of a remote one
)

// details are the words for how closely a model should look at an image.
var details = []string{"low", "high", "auto"}

// Remote reports whether the provider has to fetch the image, so that nobody knows its size.
func (i Image) Remote() bool { return i.Type == "" }

func readImage(f field) (*Image, *Error) {
	var address, detail string
	err := f.each([]string{"url", "detail"}, func(name string, member field) *Error {
		if name == "url" {
			return member.string(&address)
		}
		if member.string(&detail) != nil || !slices.Contains(details, detail) {
			return member.invalid("must be one of %s", strings.Join(details, ", "))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if address == "" {
		return nil, f.missing("url")
	}
	i := &Image{URL: address, Detail: detail}
	f.path = join(f.path, "url")
	return i, i.readURL(f)
}

// readURL takes the address of an image, which may hold the image itself.
func (i *Image) readURL(f field) *Error {
	address := i.URL
	if scheme, rest, _ := strings.Cut(address, ":"); strings.EqualFold(scheme, "data") {
		return i.readData(f, rest)
	}
	if len(address) > maxImageURL {
		return f.invalid("is longer than %d bytes", maxImageURL)
	}
	u, err := url.Parse(address)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return f.invalid("must be an http(s) URL, or a data URL with the image in base64")
	case u.User != nil:
		return f.invalid("must not have a user or password")
	}
	return nil
}

// readData takes what follows "data:". Its label is not believed: the type is that of the
// content, and goes on as such.
func (i *Image) readData(f field, rest string) *Error {
	label, data, found := strings.Cut(rest, ",")
	const suffix = ";base64"
	if at := len(label) - len(suffix); !found || at < 0 || !strings.EqualFold(label[at:], suffix) {
		return f.invalid("must have its image in base64: data:image/…;base64,…")
	}
	switch {
	case isBase64(data):
	case strings.ContainsAny(data, "-_"):
		return f.invalid("is in the form of base64 that is for URLs; it must be in the usual one, with + and /")
	case strings.ContainsAny(data, " \t\r\n"):
		return f.invalid("must be base64 without white space")
	default:
		return f.invalid("is not base64, with = at its end where it needs them")
	}
	var known bool
	var err error
	i.Type, i.Width, i.Height, known, err = picture(base64.NewDecoder(base64.StdEncoding, strings.NewReader(data)))
	switch {
	case !known:
		return f.invalid("is no PNG, JPEG, GIF or WebP")
	case err != nil || i.Width < 1 || i.Height < 1:
		return f.invalid("is an image whose header cannot be read")
	case i.Width > maxSide || i.Height > maxSide || i.Width*i.Height > maxPixels:
		return f.invalid("has %d × %d pixels; at most %d, and %d a side, are supported", i.Width, i.Height, maxPixels, maxSide)
	}
	if canonical := i.Type + suffix; label != canonical || !strings.HasPrefix(i.URL, "data:") {
		i.URL = "data:" + canonical + "," + data
	}
	return nil
}

// isBase64 reports whether s is base64 as it is usually written, with padding. It goes by
// pieces, since an image is large and only its header is needed decoded.
func isBase64(s string) bool {
	if len(s)%4 != 0 || strings.IndexByte(s, '\r') >= 0 || strings.IndexByte(s, '\n') >= 0 { // Decode would pass over these
		return false
	}
	var in [4096]byte
	var out [3072]byte
	for len(s) > 0 {
		n := copy(in[:], s)
		s = s[n:]
		m, err := base64.StdEncoding.Strict().Decode(out[:], in[:n])
		if err != nil || m != n/4*3 && s != "" {
			return false
		}
	}
	return true
}
