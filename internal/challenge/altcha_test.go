package challenge

import (
	"cmp"
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// solvedBy issues a challenge whose solution is soon found, and finds it as a
// client does.
func solvedBy(t testing.TB, a *Altcha) (c Challenge, counter uint32, key string) {
	t.Helper()
	c = must(a.create("net", 2))
	nonce, salt := must(hex.DecodeString(c.Parameters.Nonce)), must(hex.DecodeString(c.Parameters.Salt))
	for counter := range uint32(3) {
		password := binary.BigEndian.AppendUint32(nonce[:len(nonce):len(nonce)], counter)
		key := hex.EncodeToString(must(pbkdf2.Key(sha256.New, string(password), salt, int(c.Parameters.Cost), int(c.Parameters.KeyLength))))
		if strings.HasPrefix(key, c.Parameters.KeyPrefix) {
			return c, counter, key
		}
	}
	t.Fatal("the challenge has no solution")
	return Challenge{}, 0, ""
}

// payloadOf makes what a client sends, as a tree that a test can change.
func payloadOf(c Challenge, counter uint32, key string) map[string]any {
	var tree map[string]any
	raw := must(json.Marshal(map[string]any{
		"challenge": c,
		"solution":  map[string]any{"counter": counter, "derivedKey": key, "time": 12.3},
	}))
	if err := json.Unmarshal(raw, &tree); err != nil {
		panic(err)
	}
	return tree
}

func encode(tree any) string {
	return base64.StdEncoding.EncodeToString(must(json.Marshal(tree)))
}

func TestChallengeIsBareALTCHA(t *testing.T) {
	c := &clock{start}
	a := must(NewAltcha(secret, c.now))
	got := string(must(json.Marshal(must(a.Create("net", 0)))))
	want := `^\{"parameters":\{"algorithm":"PBKDF2/SHA-256","cost":1000,"expiresAt":1796040300,"keyLength":32,` +
		`"keyPrefix":"[0-9a-f]{32}","keySignature":"[0-9a-f]{64}","nonce":"[0-9a-f]{32}","salt":"[0-9a-f]{32}"\},` +
		`"signature":"[0-9a-f]{64}"\}$`
	check.That(t, regexp.MustCompile(want).MatchString(got), "got %s", got)
}

func TestVerify(t *testing.T) {
	c := &clock{start}
	a := must(NewAltcha(secret, c.now))
	challenge, counter, key := solvedBy(t, a)
	other := must(a.Create("net", 0))
	forged := must(must(NewAltcha(otherSecret, c.now)).Create("net", 0))

	type tree = map[string]any
	params := func(p tree) tree { return p["challenge"].(tree)["parameters"].(tree) }
	// changed is the solution with a change to its tree.
	changed := func(change func(tree)) string {
		p := payloadOf(challenge, counter, key)
		change(p)
		return encode(p)
	}
	raw := string(must(json.Marshal(payloadOf(challenge, counter, key))))
	replaced := func(old, new string) string {
		check.Must(t, strings.Contains(raw, old), "%s does not contain %s", raw, old)
		return base64.StdEncoding.EncodeToString([]byte(strings.Replace(raw, old, new, 1)))
	}
	good := changed(func(tree) {})

	for name, tc := range map[string]struct {
		payload string
		network string
		at      time.Duration
		want    error
	}{
		"solved":                 {payload: good},
		"without padding":        {payload: strings.TrimRight(good, "=")},
		"for URLs":               {payload: base64.URLEncoding.EncodeToString([]byte(raw))},
		"for URLs, unpadded":     {payload: base64.RawURLEncoding.EncodeToString([]byte(raw))},
		"unknown names":          {payload: changed(func(p tree) { p["test"] = true; params(p)["data"] = tree{"x": 1}; p["solution"].(tree)["x"] = nil })},
		"last second":            {payload: good, at: altchaLifetime},
		"our clock ahead":        {payload: good, at: altchaLifetime + clockSkew},
		"expired":                {payload: good, at: altchaLifetime + clockSkew + 1, want: ErrExpired},
		"longer life":            {payload: changed(func(p tree) { params(p)["expiresAt"] = start.Add(time.Hour).Unix() }), want: ErrForged},
		"another network":        {payload: good, network: "other", want: ErrStolen},
		"a longer network":       {payload: good, network: "net2", want: ErrStolen},
		"another secret":         {payload: encode(payloadOf(forged, counter, key)), want: ErrForged},
		"another's signature":    {payload: changed(func(p tree) { p["challenge"].(tree)["signature"] = other.Signature }), want: ErrForged},
		"half a signature":       {payload: changed(func(p tree) { p["challenge"].(tree)["signature"] = challenge.Signature[:32] }), want: ErrForged},
		"no signature":           {payload: changed(func(p tree) { p["challenge"].(tree)["signature"] = "" }), want: ErrForged},
		"another nonce":          {payload: changed(func(p tree) { params(p)["nonce"] = other.Parameters.Nonce }), want: ErrForged},
		"nonce in capitals":      {payload: changed(func(p tree) { params(p)["nonce"] = strings.ToUpper("a" + challenge.Parameters.Nonce[1:]) }), want: ErrForged},
		"another salt":           {payload: changed(func(p tree) { params(p)["salt"] = other.Parameters.Salt }), want: ErrForged},
		"easier prefix":          {payload: changed(func(p tree) { params(p)["keyPrefix"] = "00" }), want: ErrForged},
		"another's keySignature": {payload: changed(func(p tree) { params(p)["keySignature"] = other.Parameters.KeySignature }), want: ErrForged},
		"unsolved":               {payload: changed(func(p tree) { p["solution"].(tree)["derivedKey"] = strings.Repeat("00", 32) }), want: ErrUnsolved},
		"the prefix alone": {payload: changed(func(p tree) {
			p["solution"].(tree)["derivedKey"] = challenge.Parameters.KeyPrefix + strings.Repeat("00", 16)
		}), want: ErrUnsolved},
		"another's solution":  {payload: encode(payloadOf(other, counter, key)), want: ErrUnsolved},
		"empty":               {payload: "", want: ErrMissing},
		"test mode":           {payload: encode(tree{"challenge": nil, "solution": nil, "test": true}), want: ErrMissing},
		"null challenge":      {payload: changed(func(p tree) { p["challenge"] = nil }), want: ErrMissing},
		"not base64":          {payload: "!" + good, want: ErrMalformed},
		"JSON, not in base64": {payload: raw, want: ErrMalformed},
		"not JSON":            {payload: "AAAA", want: ErrMalformed},
		"null":                {payload: encode(nil), want: ErrMalformed},
		"list":                {payload: encode([]any{payloadOf(challenge, counter, key)}), want: ErrMalformed},
		"followed by more":    {payload: base64.StdEncoding.EncodeToString([]byte(raw + "{}")), want: ErrMalformed},
		"too long":            {payload: changed(func(p tree) { p["x"] = strings.Repeat("x", maxPayloadBytes) }), want: ErrMalformed},
		"a name twice":        {payload: replaced(`"signature"`, `"signature":"00","signature"`), want: ErrMalformed},
		"a name in capitals":  {payload: replaced(`"signature"`, `"Signature"`), want: ErrMalformed},
		"another algorithm":   {payload: changed(func(p tree) { params(p)["algorithm"] = "SHA-256" }), want: ErrMalformed},
		"a cost to pay":       {payload: changed(func(p tree) { params(p)["cost"] = 1e9 }), want: ErrMalformed},
		"cost beyond numbers": {payload: replaced(`"cost":1000`, `"cost":1e400`), want: ErrMalformed},
		"cost as text":        {payload: changed(func(p tree) { params(p)["cost"] = "1000" }), want: ErrMalformed},
		"cost null":           {payload: changed(func(p tree) { params(p)["cost"] = nil }), want: ErrMalformed},
		"a long key":          {payload: changed(func(p tree) { params(p)["keyLength"] = 1 << 30 }), want: ErrMalformed},
		"counter below 0":     {payload: changed(func(p tree) { p["solution"].(tree)["counter"] = -1 }), want: ErrMalformed},
		"counter null":        {payload: changed(func(p tree) { p["solution"].(tree)["counter"] = nil }), want: ErrMalformed},
		"signature null":      {payload: changed(func(p tree) { p["challenge"].(tree)["signature"] = nil }), want: ErrMalformed},
		"counter too large":   {payload: changed(func(p tree) { p["solution"].(tree)["counter"] = 1 << 32 }), want: ErrMalformed},
		"counter 0.5":         {payload: changed(func(p tree) { p["solution"].(tree)["counter"] = 0.5 }), want: ErrMalformed},
		"no counter":          {payload: changed(func(p tree) { delete(p["solution"].(tree), "counter") }), want: ErrMalformed},
		"no key":              {payload: changed(func(p tree) { delete(p["solution"].(tree), "derivedKey") }), want: ErrMalformed},
		"short key":           {payload: changed(func(p tree) { p["solution"].(tree)["derivedKey"] = key[:62] }), want: ErrMalformed},
		"key not in hex":      {payload: changed(func(p tree) { p["solution"].(tree)["derivedKey"] = "x" + key[1:] }), want: ErrMalformed},
		"no solution":         {payload: changed(func(p tree) { delete(p, "solution") }), want: ErrMalformed},
		"null solution":       {payload: changed(func(p tree) { p["solution"] = nil }), want: ErrMalformed},
		"no parameters":       {payload: changed(func(p tree) { delete(p["challenge"].(tree), "parameters") }), want: ErrMalformed},
	} {
		c.t = start.Add(tc.at)
		got, err := a.Verify(context.Background(), cmp.Or(tc.network, "net"), "192.0.2.1", tc.payload)
		check.That(t, errors.Is(err, tc.want), "%s: %v, want %v", name, err, tc.want)
		want := Solution{}
		if tc.want == nil {
			want = Solution{ID: challenge.Parameters.Nonce, Expires: start.Add(altchaLifetime + 2*clockSkew)}
		}
		check.That(t, got.ID == want.ID && got.Expires.Equal(want.Expires), "%s: %v, want %v", name, got, want)
	}
}

// Every process verifies what any of them issued.
func TestVerifyByAnotherProcess(t *testing.T) {
	c := &clock{start}
	challenge, counter, key := solvedBy(t, must(NewAltcha(secret, c.now)))
	if _, err := must(NewAltcha(secret, c.now)).Verify(context.Background(), "net", "", encode(payloadOf(challenge, counter, key))); err != nil {
		t.Error(err)
	}
}

func TestRefusalsAreTold(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range []Refusal{
		ErrMissing, ErrMalformed, ErrForged, ErrExpired, ErrStolen, ErrElsewhere, ErrUnsolved, ErrUsed,
		ErrPassMalformed, ErrPassForged, ErrPassExpired, ErrPassStolen,
	} {
		check.That(t, !seen[r.Error()] && strings.HasSuffix(r.Error(), "."), "%q is no message of its own", r)
		seen[r.Error()] = true
	}
}

// Every counter within the bounds is as likely as any other: whoever could foretell
// it would be spared the work. Each eighth of the range gets its share, give or
// take seven standard deviations.
func TestDrawCounter(t *testing.T) {
	const draws, slack = 20000, 330
	for _, tc := range []struct {
		hardness float64
		n        uint32
	}{
		{0, 1024}, {-1, 1024}, {math.Inf(-1), 1024}, {math.NaN(), 1024},
		{0.5, 4608}, {1, 8192}, {2, 8192}, {math.Inf(1), 8192},
	} {
		var eighths [8]int
		for range draws {
			counter := drawCounter(tc.hardness)
			check.Must(t, counter < tc.n, "hardness %v: counter %d", tc.hardness, counter)
			eighths[counter*8/tc.n]++
		}
		for _, got := range eighths {
			if got < draws/8-slack || got > draws/8+slack {
				t.Errorf("hardness %v: %v", tc.hardness, eighths)
				break
			}
		}
	}
}

func TestSecretTooShort(t *testing.T) {
	if _, err := NewAltcha(secret[:15], time.Now); err == nil {
		t.Error("15 bytes are accepted")
	}
	if _, err := NewPasses(nil, time.Minute, time.Now); err == nil {
		t.Error("no secret is accepted")
	}
}

// solvedBefore was issued at start for "net" and solved. Processes of another
// version issued what we verify, so it must stay good.
const solvedBefore = `{"challenge":{"parameters":{"algorithm":"PBKDF2/SHA-256","cost":1000,"expiresAt":1796040300,"keyLength":32,` +
	`"keyPrefix":"13f7eab8941f92baa5ce9e9f998f2612","keySignature":"73db78b26e1ccd6b826935ca6f7c08c362add9f938fe43d36908b3f776687ea8",` +
	`"nonce":"cc252abaeff45a1d461e790e0c7ca70d","salt":"3b4f30d2936142329512798031e538c1"},` +
	`"signature":"b6100731ea00ddd96cfb26f452af67d34f4a24645396e28c26701c00aafd490b"},` +
	`"solution":{"counter":2,"derivedKey":"13f7eab8941f92baa5ce9e9f998f26121b0a5fe9ad5d4e91afa55ac2e4e4dbb6","time":1.5}}`

func FuzzVerify(f *testing.F) {
	const nonce = "cc252abaeff45a1d461e790e0c7ca70d"
	c := &clock{start}
	a := must(NewAltcha(secret, c.now))
	if s, err := a.Verify(context.Background(), "net", "", base64.StdEncoding.EncodeToString([]byte(solvedBefore))); err != nil || s.ID != nonce {
		f.Fatal(s, err)
	}
	f.Add([]byte(solvedBefore))
	f.Add([]byte(strings.Replace(solvedBefore, "b610", "b611", 1)))
	f.Add([]byte(`{"challenge":null,"solution":null,"test":true}`))
	f.Add([]byte(`{"challenge":{"parameters":{"cost":1e9,"cost":1}},"solution":[]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, payload := range []string{string(raw), base64.StdEncoding.EncodeToString(raw)} {
			s, err := a.Verify(context.Background(), "net", "", payload)
			var refusal Refusal
			check.That(t, err == nil || errors.As(err, &refusal), "%v is no refusal", err)
			check.That(t, err != nil || s.ID == nonce, "accepted a challenge that was never given: %v", s)
		}
	})
}

func BenchmarkCreate(b *testing.B) {
	a := must(NewAltcha(secret, time.Now))
	for b.Loop() {
		must(a.Create("net", 0.5))
	}
}

func BenchmarkVerify(b *testing.B) {
	a := must(NewAltcha(secret, time.Now))
	challenge, counter, key := solvedBy(b, a)
	payload := encode(payloadOf(challenge, counter, key))
	for b.Loop() {
		must(a.Verify(context.Background(), "net", "", payload))
	}
}
