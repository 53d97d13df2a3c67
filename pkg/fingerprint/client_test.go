package fingerprint_test

import (
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/pkg/fingerprint"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

var noon = time.Unix(1_800_000_000, 0)

func client(t testing.TB, k *fingerprint.Keyer, s fingerprint.Signals, now time.Time) string {
	t.Helper()
	key, err := k.Client(s, now)
	check.OK(t, err)
	return key
}

func at(addr string) fingerprint.Signals {
	return fingerprint.Signals{Addr: netip.MustParseAddr(addr), UserAgent: "Mozilla/5.0 (X11; Linux) Firefox/145.0",
		JA3: "e7d705a3286e19ea42f587b344ee6865", JA4: "t13d1516h2_8daaf6152771_02713d6af862", TLS: "TLSv1.3:TLS_AES_128_GCM_SHA256"}
}

var clientShape = regexp.MustCompile(`^[A-Z2-7]{8}$`)

// TestRotatingAgents: what a script rotates for free makes clients, but stays in
// the network.
func TestRotatingAgents(t *testing.T) {
	t.Parallel()
	k := keyer(t, secret)
	for _, tt := range []struct {
		name              string
		n                 int
		caller            func(i int) fingerprint.Signals
		networks, clients int
	}{
		{"1,000 user agents of one address", 1000, func(i int) fingerprint.Signals {
			s := at("192.0.2.1")
			s.UserAgent = fmt.Sprintf("Mozilla/5.0 Chrome/%d.0", i)
			return s
		}, 1, 1000},
		{"1,000 TLS stacks of one address", 1000, func(i int) fingerprint.Signals {
			s := at("192.0.2.1")
			s.JA4 = fmt.Sprintf("t13d1516h2_8daaf6152771_%012x", i)
			return s
		}, 1, 1000},
		{"200 addresses of a /24", 200, func(i int) fingerprint.Signals {
			return at(fmt.Sprintf("192.0.2.%d", i))
		}, 1, 1},
		{"60,000 addresses of a /48", 60_000, func(i int) fingerprint.Signals {
			return at(fmt.Sprintf("2001:db8:1:%x::%x", i, i))
		}, 1, 1},
		{"one user agent in 1,000 networks", 1000, func(i int) fingerprint.Signals {
			return at(fmt.Sprintf("10.%d.%d.1", i/256, i%256))
		}, 1000, 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			networks, clients := map[string]bool{}, map[string]bool{}
			for i := range tt.n {
				s := tt.caller(i)
				key := client(t, k, s, noon)
				check.Must(t, clientShape.MatchString(key), "the client's key is %q", key)
				networks[network(t, k, s.Addr, noon)] = true
				clients[key] = true
			}
			check.That(t, len(networks) == tt.networks && len(clients) == tt.clients,
				"%d networks, %d clients; want %d, %d", len(networks), len(clients), tt.networks, tt.clients)
		})
	}
}

func TestWhatMakesAClient(t *testing.T) {
	t.Parallel()
	k := keyer(t, secret)
	for _, tt := range []struct {
		name   string
		change func(*fingerprint.Signals)
		same   bool
	}{
		{"another host of the network", func(s *fingerprint.Signals) { s.Addr = netip.MustParseAddr("192.0.2.77") }, true},
		{"another network", func(s *fingerprint.Signals) { s.Addr = netip.MustParseAddr("192.0.3.1") }, false},
		{"user agent", func(s *fingerprint.Signals) { s.UserAgent += " " }, false},
		{"user agent in capitals", func(s *fingerprint.Signals) { s.UserAgent = strings.ToUpper(s.UserAgent) }, false},
		{"no user agent", func(s *fingerprint.Signals) { s.UserAgent = "" }, false},
		{"JA4", func(s *fingerprint.Signals) { s.JA4 = "t13d1517h2_8daaf6152771_b0da82dd1658" }, false},
		{"cipher", func(s *fingerprint.Signals) { s.TLS = "TLSv1.3:TLS_AES_256_GCM_SHA384" }, false},
		{"JA3 beside a JA4, as on a browser's next connection", func(s *fingerprint.Signals) { s.JA3 = "cd08e31494f9531f560d64c695473da9" }, true},
		{"JA3 alone", func(s *fingerprint.Signals) { s.JA4 = "" }, false},
		{"a signal's end moved to the next one", func(s *fingerprint.Signals) {
			s.JA4, s.TLS = s.JA4+s.TLS[:1], s.TLS[1:]
		}, false},
		{"user agent moved to TLS", func(s *fingerprint.Signals) { s.UserAgent, s.TLS = s.TLS, s.UserAgent }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := at("192.0.2.1")
			before := client(t, k, s, noon)
			tt.change(&s)
			after := client(t, k, s, noon)
			check.That(t, (after == before) == tt.same, "%s, then %s", before, after)
		})
	}
	other := []byte("another secret of enough bytes")
	check.That(t, client(t, k, at("192.0.2.1"), noon) != client(t, keyer(t, other), at("192.0.2.1"), noon), "two secrets made the same key")
	if key, err := k.Client(fingerprint.Signals{UserAgent: "Mozilla/5.0"}, noon); err == nil {
		t.Errorf("no address got the key %s", key)
	}
	// JA3 stands in where CloudFront sends no JA4.
	a, b := at("192.0.2.1"), at("192.0.2.1")
	a.JA4, b.JA4, b.JA3 = "", "", "cd08e31494f9531f560d64c695473da9"
	check.That(t, client(t, k, a, noon) != client(t, k, b, noon), "JA3 alone does not count")
}

// TestClientRotatesWithNetwork: both keys change in the same second, once a day.
func TestClientRotatesWithNetwork(t *testing.T) {
	t.Parallel()
	k := keyer(t, secret)
	for i := range 20 {
		s := at("192.0.2.1")
		s.Addr = address(i)
		last := client(t, k, s, noon)
		turn := rotation(t, k, s.Addr, noon)
		for range 3 {
			before, after := client(t, k, s, turn.Add(-time.Second)), client(t, k, s, turn)
			check.Must(t, before == last && after != last, "%v at %v: %s, %s, then %s", s.Addr, turn, last, before, after)
			last, turn = after, turn.Add(24*time.Hour)
		}
	}
}

func TestNetworks(t *testing.T) {
	t.Parallel()
	k, addr := keyer(t, secret), netip.MustParseAddr("2001:db8::1")
	turn := rotation(t, k, addr, noon)
	old, fresh := network(t, k, addr, turn.Add(-time.Second)), network(t, k, addr, turn)
	for _, tt := range []struct {
		since, d time.Duration // now is so long after the turn; d as in Networks
		want     []string
	}{
		{0, 0, []string{fresh}},
		{0, time.Second, []string{fresh, old}},
		{0, time.Nanosecond, []string{fresh, old}},
		{10 * time.Minute, 10 * time.Minute, []string{fresh}}, // what began with the day has its key
		{10 * time.Minute, 10*time.Minute + 1, []string{fresh, old}},
		{10 * time.Minute, 30 * time.Minute, []string{fresh, old}},
		{time.Hour, 30 * time.Minute, []string{fresh}},
		{24*time.Hour - time.Second, 24 * time.Hour, []string{fresh, old}},
		{-time.Second, 30 * time.Minute, []string{old}},
	} {
		t.Run(fmt.Sprint(tt.since, " ", tt.d), func(t *testing.T) {
			got, err := k.Networks(addr, turn.Add(tt.since), tt.d)
			check.That(t, err == nil && slices.Equal(got, tt.want), "got %v, %v; want %v", got, err, tt.want)
		})
	}
	if got, err := k.Networks(netip.Addr{}, noon, time.Hour); err == nil {
		t.Errorf("no address got the keys %v", got)
	}
}

// TestNetworksCoverThePast: whatever was issued at most d ago bears one of them.
func TestNetworksCoverThePast(t *testing.T) {
	t.Parallel()
	k := keyer(t, secret)
	for i := range 200 {
		addr, now := address(i), noon.Add(time.Duration(i)*7*time.Minute)
		for _, d := range []time.Duration{0, time.Minute, 30 * time.Minute, 24 * time.Hour} {
			keys, err := k.Networks(addr, now, d)
			check.OK(t, err)
			for part := range 11 {
				ago := d * time.Duration(part) / 10
				issued := network(t, k, addr, now.Add(-ago))
				check.Must(t, slices.Contains(keys, issued), "%v: %s of %v ago is not in %v", addr, issued, ago, keys)
			}
			twoDaysAgo := network(t, k, addr, now.Add(-48*time.Hour))
			check.Must(t, !slices.Contains(keys, twoDaysAgo), "%v: the key of two days ago is in %v", addr, keys)
		}
	}
}

func TestJitter(t *testing.T) {
	t.Parallel()
	const clients, parts = 10_000, 10
	k, other := keyer(t, secret), keyer(t, []byte("another secret of enough bytes"))
	var perPart [parts]int
	for i := range clients {
		s := at("192.0.2.1")
		s.UserAgent = fmt.Sprint("agent ", i)
		key := client(t, k, s, noon)
		j := k.Jitter(key)
		if math.IsNaN(j) || j < 0.8 || j > 1.2 {
			t.Fatalf("%s has the jitter %v", key, j)
		}
		check.Must(t, j == k.Jitter(key), "%s has two jitters", key)
		check.Must(t, j != other.Jitter(key), "%s has the same jitter without the secret", key)
		perPart[min(int((j-0.8)/0.4*parts), parts-1)]++
	}
	// 1,000 on average with a standard deviation of 30; the keys are fixed.
	for part, n := range perPart {
		check.That(t, n >= 850 && n <= 1150, "%d of %d clients in tenth %d", n, clients, part)
	}
	// Another day, another bound for the same caller.
	s := at("192.0.2.1")
	if a, b := k.Jitter(client(t, k, s, noon)), k.Jitter(client(t, k, s, noon.Add(24*time.Hour))); a == b {
		t.Errorf("the jitter %v outlives the day", a)
	}
}

func BenchmarkClient(b *testing.B) {
	k, s := keyer(b, secret), at("192.0.2.1")
	for b.Loop() {
		client(b, k, s, noon)
	}
}

// A source is one IPv4 address, however it is written, or a /64 of IPv6.
func TestSourceKey(t *testing.T) {
	t.Parallel()
	k, err := fingerprint.New([]byte("a secret of at least 16 bytes"))
	check.OK(t, err)
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	key := func(addr string) string {
		t.Helper()
		s, err := k.SourceKey(netip.MustParseAddr(addr), now)
		check.Must(t, err == nil && len(s) == 8, "%s: %q, %v", addr, s, err)
		return s
	}
	for _, same := range [][2]string{
		{"203.0.113.7", "203.0.113.7"}, {"203.0.113.7", "::ffff:203.0.113.7"}, {"203.0.113.7", "64:ff9b::203.0.113.7"},
		{"203.0.113.7", "2002:cb00:7107::1"}, {"203.0.113.7", "2002:cb00:7107:9::2"}, {"2001:db8:1:2::1", "2001:db8:1:2:ffff::9"},
	} {
		check.That(t, key(same[0]) == key(same[1]), "%s and %s are two sources", same[0], same[1])
	}
	for _, other := range [][2]string{{"203.0.113.7", "203.0.113.8"}, {"2001:db8:1:2::1", "2001:db8:1:3::1"}, {"203.0.113.7", "203.0.114.7"}} {
		check.That(t, key(other[0]) != key(other[1]), "%s and %s are one source", other[0], other[1])
	}
	today := key("203.0.113.7")
	now = now.Add(24 * time.Hour)
	check.That(t, key("203.0.113.7") != today, "the key outlives its day")
	if _, err := k.SourceKey(netip.Addr{}, now); err == nil {
		t.Error("a key of no address")
	}
}
