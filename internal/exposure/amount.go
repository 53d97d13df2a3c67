package exposure

import (
	"bytes"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// Amount is dollars an hour, at most, exact. It is not negative. In JSON it is
// a decimal string such as "2.5", or null for Unbounded.
type Amount price.Pico

// Unbounded stands for no bound, and for every bound above the 9.2 million
// dollars that an Amount can hold.
const Unbounded Amount = math.MaxInt64

// String rounds up to cents, below a dollar to hundredths of a cent: "2.00",
// "0.0015".
func (a Amount) String() string {
	if a == Unbounded {
		return "no bound"
	}
	unit, decimals, least := price.Dollar/100, 2, 2
	if price.Pico(a) < price.Dollar {
		unit, decimals, least = price.Dollar/10_000, 4, 2
	}
	n := price.Pico(a) / unit
	if price.Pico(a)%unit > 0 {
		n++
	}
	scale := int64(price.Dollar / unit)
	s := fmt.Sprintf("%s.%0*d", thousands(int64(n)/scale), decimals, int64(n)%scale)
	for strings.HasSuffix(s, "0") && len(s)-strings.IndexByte(s, '.')-1 > least {
		s = s[:len(s)-1]
	}
	return s
}

// thousands sets n, which is not negative, in groups of three digits.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// MarshalJSON implements json.Marshaler.
func (a Amount) MarshalJSON() ([]byte, error) {
	if a == Unbounded {
		return []byte("null"), nil
	}
	return strconv.AppendQuote(nil, price.Pico(a).String()), nil
}

// UnmarshalJSON implements json.Unmarshaler. It takes what MarshalJSON gives.
func (a *Amount) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("null")) {
		*a = Unbounded
		return nil
	}
	s, err := strconv.Unquote(string(data))
	whole, fraction, _ := strings.Cut(s, ".")
	if err != nil || len(fraction) > 12 || strings.Trim(whole+fraction, "0123456789") != "" || whole == "" {
		return fmt.Errorf("exposure: %s is not an amount", data)
	}
	n, err := strconv.ParseInt(whole+fraction+strings.Repeat("0", 12-len(fraction)), 10, 64)
	if err != nil {
		return fmt.Errorf("exposure: %s is not an amount", data)
	}
	*a = Amount(n)
	return nil
}

// times is n of a, Unbounded if that is too much. n is not negative.
func (a Amount) times(n int64) Amount { return share(a, n, 1) }

// plus is the sum, Unbounded if that is too much.
func (a Amount) plus(b Amount) Amount {
	if a > Unbounded-b {
		return Unbounded
	}
	return a + b
}

// share is a x n / of, rounded up, Unbounded if a is or that is too much. n is
// not negative and of is at least 1.
func share(a Amount, n, of int64) Amount {
	if a == Unbounded {
		return Unbounded
	}
	hi, lo := bits.Mul64(uint64(a), uint64(n))
	if hi >= uint64(of) {
		return Unbounded
	}
	q, rest := bits.Div64(hi, lo, uint64(of))
	if rest > 0 {
		q++
	}
	return Amount(min(q, uint64(Unbounded)))
}
