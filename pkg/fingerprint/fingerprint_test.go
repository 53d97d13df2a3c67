package fingerprint_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // wherever the tests run

	"github.com/tokenfuse/tokenfuse/pkg/fingerprint"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

var secret = []byte("0123456789abcdef")

func keyer(t testing.TB, secret []byte) *fingerprint.Keyer {
	t.Helper()
	k, err := fingerprint.New(secret)
	check.OK(t, err)
	return k
}

func network(t testing.TB, k *fingerprint.Keyer, addr netip.Addr, now time.Time) string {
	t.Helper()
	key, err := k.Network(addr, now)
	check.OK(t, err)
	return key
}

func TestNew(t *testing.T) {
	t.Parallel()
	for _, short := range [][]byte{nil, {}, []byte("hunter2-hunter2")} {
		_, err := fingerprint.New(short)
		if err == nil {
			t.Errorf("a secret of %d bytes was accepted", len(short))
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
	// The caller may wipe or reuse its copy.
	mine := bytes.Clone(secret)
	k := keyer(t, mine)
	clear(mine)
	addr, now := netip.MustParseAddr("192.0.2.1"), time.Unix(1_800_000_000, 0)
	check.That(t, network(t, k, addr, now) == network(t, keyer(t, secret), addr, now), "the key changed with the caller's copy of the secret")
}

func TestSameNetwork(t *testing.T) {
	t.Parallel()
	k, now := keyer(t, secret), time.Unix(1_800_000_000, 0)
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.0", "192.0.2.255", true},
		{"192.0.2.255", "192.0.3.0", false},
		{"192.0.2.1", "192.1.2.1", false},
		{"192.0.2.1", "193.0.2.1", false},
		{"2001:db8:1::", "2001:db8:1:ffff:ffff:ffff:ffff:ffff", true},
		{"2001:db8:1::1", "2001:db8:2::1", false},
		{"2001:db8:1::1", "2001:db9:1::1", false},
		{"fe80::1%eth0", "fe80::1", true},
		{"fe80::1%eth0", "fe80::2%eth1", true},
		{"1.2.3.4", "::ffff:1.2.3.4", true},
		{"1.2.3.4", "::ffff:1.2.3.200%eth0", true},
		{"::ffff:1.2.3.4", "::ffff:1.2.4.4", false},
		{"1.2.3.4", "64:ff9b::1.2.3.4", true},
		{"64:ff9b::1.2.3.4", "64:ff9b::1.2.4.4", false},
		{"1.2.3.4", "64:ff9b:1::1.2.3.4", false}, // a local prefix: its own network
		{"1.2.3.4", "2002:102:304::1", true},
		{"2002:102:304::1", "2002:102:3ff:5:6:7:8:9", true},
		{"2002:102:304::1", "2002:102:404::1", false},
		{"1.2.3.4", "::1.2.3.4", false}, // never was a source
		{"0.0.0.0", "::", false},
		{"4.1.2.3", "401:203::", false},
	} {
		t.Run(tt.a+" "+tt.b, func(t *testing.T) {
			a := network(t, k, netip.MustParseAddr(tt.a), now)
			b := network(t, k, netip.MustParseAddr(tt.b), now)
			check.That(t, (a == b) == tt.same, "got %s and %s", a, b)
		})
	}
	if key, err := k.Network(netip.Addr{}, now); err == nil {
		t.Errorf("no address got the key %s", key)
	}
}

func TestSecretDecides(t *testing.T) {
	t.Parallel()
	addr, now := netip.MustParseAddr("192.0.2.1"), time.Unix(1_800_000_000, 0)
	other := bytes.Clone(secret)
	other[15] ^= 1
	check.That(t, network(t, keyer(t, secret), addr, now) != network(t, keyer(t, other), addr, now), "two secrets made the same key")
}

// address is the i-th of a row of networks, the two IP versions in turn.
func address(i int) netip.Addr {
	if i%2 == 0 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(i/2)<<8|7)
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], 0x2600<<48|uint64(i/2)<<16|7)
	return netip.AddrFrom16(b)
}

func TestManyNetworks(t *testing.T) {
	t.Parallel()
	const networks = 100_000
	k, now := keyer(t, secret), time.Unix(1_800_000_000, 0)
	shape := regexp.MustCompile(`^[a-z2-7]{16}$`)
	seen := make(map[string]netip.Addr, networks)
	for i := range networks {
		addr := address(i)
		key := network(t, k, addr, now)
		if first, ok := seen[key]; ok {
			t.Fatalf("%v and %v share a key", first, addr)
		}
		check.Must(t, shape.MatchString(key), "%v has the key %q", addr, key)
		seen[key] = addr
	}
}

// rotation is the first second after from at which addr's key is another. It
// must come within a day.
func rotation(t *testing.T, k *fingerprint.Keyer, addr netip.Addr, from time.Time) time.Time {
	t.Helper()
	old := network(t, k, addr, from)
	low, high := int64(0), int64(24*60*60) // the key is old at low, another at high
	check.Must(t, network(t, k, addr, from.Add(24*time.Hour)) != old, "%v keeps its key for more than a day", addr)
	for high-low > 1 {
		if middle := (low + high) / 2; network(t, k, addr, from.Add(time.Duration(middle)*time.Second)) == old {
			low = middle
		} else {
			high = middle
		}
	}
	return from.Add(time.Duration(high) * time.Second)
}

func TestRotatesOnceADay(t *testing.T) {
	t.Parallel()
	k := keyer(t, secret)
	// A leap day, a turn of the year and of a month, and zones that turn their
	// clocks within.
	newYork, err := time.LoadLocation("America/New_York")
	check.OK(t, err)
	for _, from := range []time.Time{
		time.Date(2028, 2, 28, 1, 0, 0, 0, time.UTC),
		time.Date(2026, 12, 30, 23, 59, 59, 999, time.UTC),
		time.Date(2100, 2, 27, 12, 0, 0, 0, time.UTC),
		time.Date(2027, 3, 13, 12, 0, 0, 0, newYork),
	} {
		for i := range 10 {
			addr := address(i)
			keys := map[string]bool{network(t, k, addr, from): true}
			at := rotation(t, k, addr, from)
			for range 5 {
				before, after := network(t, k, addr, at.Add(-time.Second)), network(t, k, addr, at)
				check.Must(t, keys[before] && !keys[after], "%v at %v: %s, then %s", addr, at, before, after)
				keys[after] = true
				next := rotation(t, k, addr, at)
				d := next.Sub(at)
				check.Must(t, d == 24*time.Hour, "%v: a day of %v after %v", addr, d, at)
				at = next
			}
			if a, b := network(t, k, addr, at), network(t, k, addr, at.In(newYork)); a != b {
				t.Fatalf("another key for the same time in another zone")
			}
		}
	}
}

// TestThroughTheDay walks through two days in steps of 10 s: one change in any
// 24 hours, and no key comes back.
func TestThroughTheDay(t *testing.T) {
	t.Parallel()
	k, from := keyer(t, secret), time.Date(2028, 2, 28, 12, 0, 0, 0, time.UTC)
	addr := netip.MustParseAddr("2001:db8::1")
	var changes []int
	last := network(t, k, addr, from)
	seen := map[string]bool{last: true}
	for s := 10; s <= 2*24*60*60; s += 10 {
		key := network(t, k, addr, from.Add(time.Duration(s)*time.Second))
		if key == last {
			continue
		}
		check.Must(t, !seen[key], "the key of an earlier day came back after %d s", s)
		seen[key], last = true, key
		changes = append(changes, s)
	}
	check.That(t, len(changes) == 2 && changes[1]-changes[0] == 24*60*60, "changes after %v seconds", changes)
}

// TestClockSteps: a clock that goes back over the hour of rotation meets the
// key before it again, and forward the same one after it.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	k := keyer(t, secret)
	addr := netip.MustParseAddr("192.0.2.1")
	at := rotation(t, k, addr, time.Unix(1_800_000_000, 0))
	old, fresh := network(t, k, addr, at.Add(-time.Second)), network(t, k, addr, at)
	for _, tt := range []struct {
		step time.Duration
		want string
	}{
		{0, fresh}, {-time.Nanosecond, old}, {time.Second, fresh}, {-2 * time.Second, old},
		{500 * time.Millisecond, fresh}, {-5 * time.Minute, old}, {5 * time.Minute, fresh},
	} {
		check.Equal(t, network(t, k, addr, at.Add(tt.step)), tt.want, "%v from the rotation", tt.step)
	}
}

// TestRotationsAreSpread: each hour of the day has its share of the networks.
func TestRotationsAreSpread(t *testing.T) {
	t.Parallel()
	const networks, hours = 1200, 24
	k, midnight := keyer(t, secret), time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC)
	var perHour [hours]int
	seconds := map[time.Time]bool{}
	for i := range networks {
		at := rotation(t, k, address(i), midnight.Add(-time.Second)) // from midnight on
		perHour[int(at.Sub(midnight)/time.Hour)%hours]++
		seconds[at] = true
	}
	// 50 on average with a standard deviation of 7; the keys are fixed, so
	// this does not fail by chance.
	for hour, n := range perHour {
		check.That(t, n >= 25 && n <= 75, "%d of %d rotations in hour %d", n, networks, hour)
	}
	check.That(t, len(seconds) >= networks*9/10, "%d networks share %d times", networks, len(seconds))
}

func ExampleKeyer_Network() {
	keys, err := fingerprint.New([]byte("at least 16 random bytes"))
	if err != nil {
		panic(err)
	}
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, remoteAddr := range []string{"192.0.2.1:50123", "192.0.2.99", "[::ffff:192.0.2.7]:443", "[2001:db8::1]:443"} {
		addr, err := fingerprint.ParseSource(remoteAddr)
		if err != nil {
			panic(err)
		}
		key, err := keys.Network(addr, now)
		if err != nil {
			panic(err)
		}
		fmt.Println(key)
	}
	// Output:
	// kafhskjcpuw5yb4x
	// kafhskjcpuw5yb4x
	// kafhskjcpuw5yb4x
	// yqcw6u5wjenxlgua
}

func BenchmarkNetwork(b *testing.B) {
	k, addr, now := keyer(b, secret), netip.MustParseAddr("192.0.2.1"), time.Unix(1_800_000_000, 0)
	for b.Loop() {
		network(b, k, addr, now)
	}
}
