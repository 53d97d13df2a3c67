package secret

import (
	"context"
	"errors"
	"slices"

	"github.com/tokenfuse/tokenfuse/internal/awsjson"
)

// maxNames is how many parameters GetParameters takes.
const maxNames = 10

// parameter is a parameter as SSM answers it.
type parameter struct{ Name, ARN, Selector, Value string }

// is reports whether p is what name asks for: a parameter's name or ARN, with a version
// or a label after a colon or without.
func (p parameter) is(name string) bool {
	return name == p.Name+p.Selector || name == p.ARN+p.Selector
}

// parameters reads at most maxNames parameters of Parameter Store in one request.
func (r *Reader) parameters(ctx context.Context, names []string) map[string]value {
	var out struct {
		Parameters        []parameter
		InvalidParameters []string
	}
	refused, err := r.aws.Ask(ctx, awsjson.Service{Host: "ssm", ID: "SSM", Version: "1.1"}, "AmazonSSM.GetParameters", map[string]any{"Names": names, "WithDecryption": true}, &out)
	values := map[string]value{}
	if refused && len(names) > 1 {
		// One that may not be read, or whose key may not be used, fails the request for all.
		// Which one it is shows when each is asked for by itself.
		for _, name := range names {
			values[name] = r.parameters(ctx, []string{name})[name]
		}
		return values
	}
	for _, name := range names {
		i := slices.IndexFunc(out.Parameters, func(p parameter) bool { return p.is(name) })
		switch {
		case err != nil:
			values[name] = value{err: err}
		case i >= 0:
			values[name] = value{text: out.Parameters[i].Value}
		case slices.Contains(out.InvalidParameters, name):
			values[name] = value{err: errors.New("ParameterNotFound: there is no such parameter, or its name is not valid")}
		default:
			values[name] = value{err: errors.New("the answer does not have it")}
		}
	}
	return values
}
