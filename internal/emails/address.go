package emails

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// maxAddressBytes is the longest address that SMTP can carry (RFC 5321, 4.5.3.1.3).
const maxAddressBytes = 254

// canonical is the one spelling that stands for all of an address: case folded,
// and its domain as DNS has it.
func canonical(email string) (string, error) {
	at := strings.LastIndexByte(email, '@')
	if at < 1 || len(email) > maxAddressBytes || !utf8.ValidString(email) || strings.ContainsFunc(email, notInAddress) {
		return "", ErrAddress
	}
	domain, ok := asciiDomain(email[at+1:])
	if !ok {
		return "", ErrAddress
	}
	return norm.NFC.String(cases.Fold().String(norm.NFC.String(email[:at]))) + "@" + domain, nil
}

func notInAddress(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

// asciiDomain gives a domain in lower case with its labels in Punycode where they
// need it: the mapping of UTS #46, nontransitional, as far as one of its spellings
// must find another. Whether DNS would allow the domain is not looked at.
func asciiDomain(domain string) (string, bool) {
	domain = strings.ReplaceAll(norm.NFKC.String(strings.ToLower(norm.NFKC.String(domain))), "\u3002", ".")
	labels := strings.Split(strings.TrimSuffix(domain, "."), ".")
	for i, label := range labels {
		if label == "" {
			return "", false
		}
		if strings.ContainsFunc(label, func(r rune) bool { return r >= utf8.RuneSelf }) {
			labels[i] = "xn--" + punycode([]rune(label))
		}
	}
	return strings.Join(labels, "."), true
}
