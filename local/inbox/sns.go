package inbox

import (
	"crypto/rand"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"
)

const (
	maxSubject = 100     // characters
	maxMessage = 1 << 18 // bytes, attributes included
)

// publish is SNS Publish: a form in, XML out.
func (b *Inbox) publish(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(r)
	if err != nil {
		refuse(w, "InvalidParameter", "The body cannot be read.")
		return
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		refuse(w, "InvalidParameter", "The body is not a form.")
		return
	}
	if action := form.Get("Action"); action != "Publish" {
		refuse(w, "InvalidAction", "This stand-in only knows Publish.")
		return
	}
	m := Message{Time: b.now().UTC(), Subject: form.Get("Subject"), Message: form.Get("Message"), Attributes: attributes(form)}
	size := len(m.Message)
	for name, value := range m.Attributes {
		size += len(name) + len(value)
	}
	switch {
	case !strings.HasPrefix(form.Get("TopicArn"), "arn:"):
		refuse(w, "InvalidParameter", "Invalid parameter: TopicArn")
	case form.Has("Subject") && !validSubject(m.Subject):
		refuse(w, "InvalidParameter", "Invalid parameter: Subject")
	case m.Message == "" || size > maxMessage || !utf8.ValidString(m.Message):
		refuse(w, "InvalidParameter", "Invalid parameter: Message")
	default:
		add(b, &b.sns, m)
		answer(w, http.StatusOK, struct {
			XMLName   xml.Name `xml:"http://sns.amazonaws.com/doc/2010-03-31/ PublishResponse"`
			MessageID string   `xml:"PublishResult>MessageId"`
			RequestID string   `xml:"ResponseMetadata>RequestId"`
		}{MessageID: rand.Text(), RequestID: rand.Text()})
	}
}

// attributes reads MessageAttributes.entry.1.Name, .Value.StringValue and so on.
func attributes(form url.Values) map[string]string {
	all := map[string]string{}
	for i := 1; ; i++ {
		entry := fmt.Sprintf("MessageAttributes.entry.%d.", i)
		name := form.Get(entry + "Name")
		if name == "" {
			return all
		}
		all[name] = form.Get(entry + "Value.StringValue")
	}
}

// validSubject: "ASCII text that begins with a letter, number, or punctuation mark;
// must not include line breaks or control characters; and must be less than 100
// characters long" (of the API's reference; 100 are taken).
func validSubject(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && s[0] != ' ' && len(s) <= maxSubject
}

func refuse(w http.ResponseWriter, code, message string) {
	answer(w, http.StatusBadRequest, struct {
		XMLName   xml.Name `xml:"http://sns.amazonaws.com/doc/2010-03-31/ ErrorResponse"`
		Type      string   `xml:"Error>Type"`
		Code      string   `xml:"Error>Code"`
		Message   string   `xml:"Error>Message"`
		RequestID string   `xml:"RequestId"`
	}{Type: "Sender", Code: code, Message: message, RequestID: rand.Text()})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(status)
	_ = xml.NewEncoder(w).Encode(body)
}
