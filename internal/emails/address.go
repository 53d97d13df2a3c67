package emails

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
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

// domains maps a domain to the one spelling that DNS has of it (UTS #46,
// nontransitional), without asking whether DNS would allow it. Some characters become a blank
// and an accent there: that is no domain.
var domains = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(false))

func asciiDomain(domain string) (string, bool) {
	ascii, err := domains.ToASCII(domain)
	ascii = strings.TrimSuffix(ascii, ".") // the root, which is often left out
	return ascii, err == nil && !slices.Contains(strings.Split(ascii, "."), "") && !strings.ContainsFunc(ascii, notInAddress)
}
