package fingerprint_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/pkg/fingerprint"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestParseSource(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{ // want "": refused
		{"192.0.2.1", "192.0.2.1"},
		{"192.0.2.1:443", "192.0.2.1"},
		{"192.0.2.1:0", "192.0.2.1"},
		{"2001:db8::1", "2001:db8::1"},
		{"[2001:db8::1]:443", "2001:db8::1"},
		{"::ffff:192.0.2.1", "192.0.2.1"},
		{"[::ffff:192.0.2.1]:443", "192.0.2.1"},
		{"fe80::1%eth0", "fe80::1"},
		{"[fe80::1%eth0]:443", "fe80::1"},
		{"", ""},
		{"localhost", ""},
		{"localhost:443", ""},
		{":443", ""},
		{"192.0.2.1:", ""},
		{"192.0.2.1:http", ""},
		{"192.0.2.1:65536", ""},
		{"192.0.2", ""},
		{"192.0.2.256", ""},
		{"192.0.2.01", ""},
		{"192.0.2.1/24", ""},
		{" 192.0.2.1", ""},
		{"192.0.2.1, 192.0.2.2", ""},
		{"[2001:db8::1]", ""},
		{"[192.0.2.1]:443", ""},
		{"@", ""}, // a Unix socket
	} {
		t.Run(tt.in, func(t *testing.T) {
			got, err := fingerprint.ParseSource(tt.in)
			if tt.want == "" {
				check.Must(t, err != nil, "got %v", got)
				check.That(t, tt.in == "" || !strings.Contains(err.Error(), tt.in) || len(tt.in) <= 1, "the error repeats the source: %v", err)
				return
			}
			check.That(t, err == nil && got == netip.MustParseAddr(tt.want), "got %v, %v", got, err)
		})
	}
}

func FuzzParseSource(f *testing.F) {
	for _, seed := range []string{"192.0.2.1", "192.0.2.1:443", "[2001:db8::1%z]:1", "::ffff:1.2.3.4", "2002:102:304::", "64:ff9b::1", "", ":", "[]:1"} {
		f.Add(seed)
	}
	k := keyer(f, secret)
	f.Fuzz(func(t *testing.T, source string) {
		addr, err := fingerprint.ParseSource(source)
		if err != nil {
			check.Must(t, !addr.IsValid(), "an error and %v", addr)
			return
		}
		check.Must(t, addr.IsValid() && !addr.Is4In6() && addr.Zone() == "", "got %v", addr)
		again, err := fingerprint.ParseSource(addr.String())
		check.Must(t, err == nil && again == addr, "%v reads as %v, %v", addr, again, err)
		key := network(t, k, addr, time.Unix(1_800_000_000, 0))
		check.Must(t, len(key) == 16, "%v has the key %q", addr, key)
	})
}
