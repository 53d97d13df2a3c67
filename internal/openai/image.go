package openai

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

// Remote reports whether the provider has to fetch the image, so that nobody knows its size.
func (i Image) Remote() bool { return i.Type == "" }
