package keys_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/challenge"
	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/pkg/fingerprint"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// What is formed is read again as what it was; ids are as their makers make them.
func TestIdentityReadsWhatKeyForms(t *testing.T) {
	t.Parallel()
	secret := []byte("a-secret-of-some-length")
	keyer, err := fingerprint.New(secret)
	check.OK(t, err)
	passes, err := challenge.NewPasses(secret, time.Minute, time.Now)
	check.OK(t, err)
	network, err := keyer.Network(netip.MustParseAddr("203.0.113.7"), time.Now())
	check.OK(t, err)
	pass, _ := passes.Issue(network)
	visitors, _ := keyer.Visitor("web#123", time.Now(), 0)
	for kind, ids := range map[keys.Kind][]string{
		keys.User:    {"auth0|ann", keys.Visitor("web", keyer.Account("web#123"))},
		keys.Network: {network, keys.Visitor("web", network), keys.Visitor("web", visitors[0])},
		keys.Pass:    {pass.ID, keys.Visitor("web", pass.ID)},
	} {
		for _, id := range ids {
			if gotKind, gotID, ok := keys.Identity(kind.Key(id)); !ok || gotKind != kind || gotID != id {
				t.Errorf("%s reads as %q, %q, %t", kind.Key(id), gotKind, gotID, ok)
			}
		}
	}
	for _, key := range []string{
		"", keys.Fuse, keys.Alarm, "net", "user", keys.Admin.Key("a"), keys.Pool.Key("all"), keys.Email.Key("a"), keys.Used.Key("a"), keys.Audit, keys.Change(1),
		keys.Siteverify(network), keys.Siteverify(keys.Visitor("web", network)), keys.User.Key("web#123"), keys.User.Key("#" + network), keys.Network.Key("\n#" + network), keys.User.Key("we b#" + network), keys.Network.Key("web#" + network + "#x"), keys.Pass.Key("web#" + network), keys.Network.Key(""), keys.Network.Key(network + "\n"), keys.Network.Key(network[:15] + "\n"), keys.Network.Key("AAAAAAAAAAAAAAAA"), keys.Network.Key("aaaaaaaaaaaaa==="),
		keys.Network.Key(network[1:]), keys.Pass.Key(""), keys.Pass.Key(pass.ID[1:]), keys.Pass.Key(pass.ID + "A"), keys.Pass.Key(pass.ID[1:] + "\n"), keys.Pass.Key("+" + pass.ID[1:]),
	} {
		if kind, id, ok := keys.Identity(key); ok {
			t.Errorf("%q reads as %q, %q", key, kind, id)
		}
	}
}

// The keys of changes sort as their numbers do.
func TestChange(t *testing.T) {
	t.Parallel()
	if got, want := keys.Change(17), "audit#000000000017"; got != want || keys.Change(99) >= keys.Change(100) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Whatever is read as an identity is formed again as it was, is of one kind and is no other
// item.
func FuzzIdentity(f *testing.F) {
	for _, seed := range []string{"user#auth0|ann", "net#aaaaaaaabbbbbbbb", "pass#DlRUYX1u-ll3P4Kknz6qug", "user#web#aaaaaaaabbbbbbbb", "net##aaaaaaaabbbbbbbb", "net#aaaaaaaa\nbbbbbbb", "fuse", "pool#open", "net#a#siteverify", "user#", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		kind, id, ok := keys.Identity(key)
		if !ok {
			return
		}
		check.That(t, kind.Key(id) == key, "%q was read as %q of %q", key, id, kind)
		check.That(t, key != keys.Fuse && key != keys.Alarm && key != keys.Audit, "%q is an identity", key)
		for _, other := range []keys.Kind{keys.Admin, keys.Pool, keys.Email, keys.Used} {
			_, of := other.ID(key)
			check.That(t, !of, "%q is of %s, too", key, other)
		}
		if strings.Contains(id, "#") {
			backend, of, _ := strings.Cut(id, "#")
			check.That(t, backend != "" && of != "" && !strings.Contains(of, "#") && of != "siteverify", "a visitor %q", id)
		}
		check.That(t, kind == keys.User || !strings.ContainsAny(id, " \r\n"), "an id with blanks: %q", id)
	})
}
