package denials

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestCount(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 30, 12, 0, 30, 0, time.UTC)
	pages := []string{
		`{"MetricDataResults":[{"Id":"denied","Label":"tokens","Timestamps":[1796040000],"Values":[3.0,4.0],"StatusCode":"PartialData"}],"NextToken":"more"}`,
		`{"MetricDataResults":[{"Id":"denied","Label":"tokens","Values":[1]},{"Id":"denied","Label":"fuse_open","Values":[2]}],"Messages":[]}`,
	}
	asked := 0
	cloudWatch := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			StartTime, EndTime int64
			NextToken          string
			MetricDataQueries  []struct{ Expression string }
		}
		check.OK(t, json.NewDecoder(r.Body).Decode(&in))
		check.Equal(t, r.Header.Get("X-Amz-Target"), "GraniteServiceVersion20100801.GetMetricData", "the call")
		check.That(t, in.StartTime == 1796036400 && in.EndTime == 1796040030 && in.MetricDataQueries[0].Expression == `SEARCH('{"fuse",Limit} MetricName="Denied"', 'Sum', 60)` &&
			strings.Contains(r.Header.Get("Authorization"), "/eu-west-1/monitoring/aws4_request") && (in.NextToken == "more") == (asked == 1), "%+v", in)
		_, _ = w.Write([]byte(pages[asked]))
		asked++
	}))
	t.Cleanup(cloudWatch.Close)
	r := NewReader(aws.Config{Region: "eu-west-1", BaseEndpoint: &cloudWatch.URL, Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")}, "fuse")
	got, err := r.Count(t.Context(), noon.Add(-time.Hour), noon)
	check.OK(t, err)
	check.That(t, maps.Equal(got, map[string]int64{"tokens": 8, "fuse_open": 2}), "%v", got)

	denied := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"__type":"com.amazonaws.cloudwatch#AccessDenied","message":"not allowed"}`))
	}))
	t.Cleanup(denied.Close)
	r = NewReader(aws.Config{Region: "eu-west-1", BaseEndpoint: &denied.URL, Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")}, "fuse")
	_, err = r.Count(t.Context(), noon.Add(-time.Hour), noon)
	check.That(t, err != nil && strings.Contains(err.Error(), "AccessDenied: not allowed"), "%v", err)
}
