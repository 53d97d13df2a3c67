package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// What is wrong with a flag or the environment is said before anything is served.
func TestServeRefuses(t *testing.T) {
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL_DYNAMODB", "LIMITS_TABLE", "SPEND_TABLE", "TOKENFUSE_CONFIG"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for args, says := range map[string]string{
		"--trusted-proxies 10.0.0.0/8,0.0.0.0/0":  `--trusted-proxies: "0.0.0.0/0" is every address`,
		"--trusted-proxies proxy":                 `--trusted-proxies: "proxy" is neither`,
		"--public-url ai.example.com":             "--public-url must be a scheme and a host",
		"--public-url https://ai.example.com/api": "--public-url must be a scheme and a host",
		"--drain=-1s":                        "--drain",
		"--alarm-every=-1s":                  "--alarm-every",
		"--metrics statsd":                   "--metrics",
		"--tls-cert x":                       "--tls-key",
		"--tls-cert absent --tls-key absent": "--tls-cert and --tls-key: open absent",
		"--config absent.yaml":               "absent.yaml",
		"":                                   "AWS_REGION is not set",
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"serve", "--config", "../../tokenfuse.yaml", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, strings.Fields(args)...), streams{out: &out, err: &errs})
		check.That(t, code != 0 && strings.Contains(errs.String(), says), "%s: code %d: %s", args, code, &errs)
	}
}
