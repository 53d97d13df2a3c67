package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/tokenfuse/tokenfuse/internal/keys"
)

// adminFlags are what all commands take that call the admin routes.
type adminFlags struct {
	Endpoint string `help:"The deployment's address, stage included, or where dev runs ($TOKENFUSE_ENDPOINT)." placeholder:"URL"`
	Stack    string `help:"The deployment's CloudFormation stack, which tells the address ($TOKENFUSE_STACK)." placeholder:"NAME"`
}

// adminTimeout bounds a call, finding the credentials included.
const adminTimeout = 30 * time.Second

// keyOfAdmin is the key by which the admin routes of serve know an administrator; "": AWS's
// credentials sign. It is in the environment alone, since others can see arguments.
func keyOfAdmin() string { return os.Getenv("TOKENFUSE_ADMIN_KEY") }

// call calls an admin route, with the key of an administrator or signed with the
// credentials that every AWS tool finds, and decodes the answer. With --json it prints
// that, too.
func (a adminFlags) call(ctx context.Context, s streams, method, route string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	var cfg aws.Config
	var err error
	key := keyOfAdmin()
	if key == "" || a.Stack != "" { // a stack is API Gateway's
		if cfg, err = awsConfig(ctx); err != nil {
			return err
		}
	}
	endpoint, err := a.address(ctx, cfg)
	if err != nil {
		return err
	}
	var payload []byte
	if body != nil {
		if payload, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, endpoint+route, bytes.NewReader(payload))
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	var region string
	if key != "" && a.Stack == "" {
		req.Header.Set("Authorization", "Bearer "+key)
	} else if region, err = sign(ctx, cfg, req, payload); err != nil {
		return err
	}
	got, err := send(req, endpoint, region)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(got, answer); err != nil {
		return fmt.Errorf("%s gave no readable answer: is it a deployment of tokenfuse?", endpoint)
	}
	if s.json {
		fmt.Fprintf(s.out, "%s\n", got)
	}
	return nil
}

// awsConfig is what every AWS tool finds, credentials included.
func awsConfig(ctx context.Context) (aws.Config, error) {
	const how = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (dev prints a pair of its own), or, for serve, TOKENFUSE_ADMIN_KEY"
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return aws.Config{}, fmt.Errorf("the AWS configuration cannot be read: %w; %s", err, how)
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		return aws.Config{}, fmt.Errorf("no AWS credentials were found: %s", how)
	}
	return cfg, nil
}

// address is where the deployment is.
func (a adminFlags) address(ctx context.Context, cfg aws.Config) (string, error) {
	address, from := a.Endpoint, "--endpoint"
	if a.Stack != "" {
		var err error
		if address, err = stackEndpoint(ctx, cfg, a.Stack); err != nil {
			return "", err
		}
		from = "the output of stack " + a.Stack
	}
	return rootOf(from, address)
}

// regional is the name that API Gateway gives to a deployment.
var regional = regexp.MustCompile(`\.execute-api\.([a-z0-9-]+)\.amazonaws\.`)

// sign signs a request for the region that it goes to: the one in the endpoint's
// name, else that of the environment, else us-east-1.
func sign(ctx context.Context, cfg aws.Config, req *http.Request, payload []byte) (region string, err error) {
	credentials, err := cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return "", err
	}
	region = cmp.Or(cfg.Region, "us-east-1")
	if named := regional.FindStringSubmatch(req.URL.Host); named != nil {
		region = named[1]
	}
	hash := sha256.Sum256(payload)
	return region, v4.NewSigner().SignHTTP(ctx, credentials, req, hex.EncodeToString(hash[:]), "execute-api", region, time.Now())
}

// send gives the body of a successful answer, or what to do about another.
func send(req *http.Request, endpoint, region string) ([]byte, error) {
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }} // signed for one address
	res, err := client.Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // the rest of it repeats the endpoint
	}
	if err != nil {
		return nil, fmt.Errorf("no answer from %s: is the address right, and the deployment (or `tokenfuse dev`) up? (%w)", endpoint, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusOK {
		return body, nil
	}
	var failed struct {
		Message string // of API Gateway itself
		Error   struct{ Message, Code string }
	}
	_ = json.Unmarshal(body, &failed) // what is no JSON has no message
	switch said := printable(failed.Error.Message); {
	case said != "":
		return nil, &failure{Message: said, Code: printable(failed.Error.Code)}
	case res.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("the signature was refused (%s): check whose credentials these are (`aws sts get-caller-identity`; dev prints a new pair at each start), that they may call the route, that the address ends with the stage, and the region, which was %s", printable(failed.Message), region)
	}
	return nil, fmt.Errorf("%s answered %s: does the address end with the stage, such as https://ID.execute-api.%s.amazonaws.com/prod?", endpoint, res.Status, region)
}

// printable takes from foreign text what could steer a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, s)
}

// whom says which field of a request names an identity, and as what: it has its kind
// before a #, or is pool:NAME, or an e-mail address, or else a user's id. A user whose
// id has an @ or begins with pool: is named as user#ID.
func whom(name string) (field, value string) {
	if pool, ok := strings.CutPrefix(name, "pool:"); ok {
		return "identity", keys.Pool.Key(pool)
	}
	for _, kind := range []keys.Kind{keys.User, keys.Network, keys.Pass, keys.Pool} {
		if _, ok := kind.ID(name); ok {
			return "identity", name
		}
	}
	if strings.Contains(name, "@") {
		return "email", name
	}
	return "user", name
}

// table writes rows of cells in columns. Columns without a cell are left out.
func table(w io.Writer, head []string, rows [][]string) {
	used := make([]bool, len(head))
	for _, row := range rows {
		for i, cell := range row {
			used[i] = used[i] || cell != ""
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		var cells []string
		for i, cell := range row {
			if used[i] {
				cells = append(cells, cell)
			}
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	_ = t.Flush() // as with every other print
}
