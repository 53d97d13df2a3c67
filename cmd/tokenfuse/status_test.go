package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestStatusIsShown(t *testing.T) {
	t.Parallel()
	for view, want := range map[string]string{
		`{"time":1796040000,"spend":{"usd":"12.4","calls":6,"top":[{"identity":"net#4f1d","usd":"10.3","calls":2},{"identity":"user#1\u001b[2J","usd":"0.000123","calls":1}]},
			"alarm":{"state":"alarm","since":1796039940,"threshold_usd":"7.6","threshold_from":"4 x the highest normal hour","normal_peak_usd":"1.9","seen":1796039940},
			"fuse":{"state":"challenge","until":1796043600,"set_by":"alarm","reason":"spending is above its threshold"},
			"blocks":[{"identity":"user#bob","until":1796126400,"set_by":"arn:ops"}],"denials":{"tokens":7,"cv":9,"fuse_open":7},"problems":[],
			"pools":[{"name":"all","ceiling_usd":"20","period_seconds":3600,"at_once_usd":"5","spent_usd":"12.4","committed_usd":"5.5","free_usd":"0","debt_usd":"0.5"}]}`: `last hour   $12.40 in 6 calls
alarm       ALARM since 2026-11-30 11:59:00 UTC
threshold   $7.60: 4 x the highest normal hour (as of 2026-11-30 11:59:00 UTC)
baseline    $1.90: the highest normal hour
fuse        the fuse is challenge until 2026-11-30 13:00:00 UTC, set by alarm: spending is above its threshold

Pools (committed: spent or out on lease, and not refilled yet)
POOL  SPENT LAST HOUR  COMMITTED  FREE NOW  OF AT ONCE  CEILING  PER  DEBT
all   $12.40           $5.50      $0.00     $5.00       $20.00   1h   $0.50

Blocked
WHO       UNTIL                    BY
user#bob  2026-12-01 12:00:00 UTC  arn:ops

Denied in the last hour
BY         CALLS
cv         9
fuse_open  7
tokens     7

Who spent most in the last hour
WHO        SPENT    CALLS
net#4f1d   $10.30   2
user#1[2J  $0.0001  1
`,
		`{"denials":{"cv":1},"denials_of":"process"}`: `
Denied in the last hour by the process that answers this
BY  CALLS
cv  1
`,
		`{"spend":null,"alarm":{"state":"off"},"fuse":{"state":"closed"},"blocks":[],"denials":null,"pools":[],"problems":["what was spent cannot be read"]}`: `problem     what was spent cannot be read
alarm       there is none in the configuration
fuse        the fuse is closed
`,
	} {
		var v statusView
		check.OK(t, json.Unmarshal([]byte(view), &v))
		var out bytes.Buffer
		v.write(streams{out: &out})
		check.Diff(t, cmp.Diff(want, out.String()), "%s", view)
	}
}
