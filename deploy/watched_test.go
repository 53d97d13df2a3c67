//go:build sam

package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/testkit/buffer"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
)

// metricName is a metric and the names of its dimensions.
func metricName(name string, dimensions ...string) string {
	return strings.TrimSpace(name + " " + strings.Join(dimensions, ","))
}

// written are the metrics that the functions wrote, with a value of each dimension.
func (w *world) written() map[string][]string {
	w.t.Helper()
	all := map[string][]string{}
	for _, line := range buffer.Lines(w.t, w.metrics.String()) {
		for _, d := range list(at(line, "_aws", "CloudWatchMetrics")) {
			dimensions := texts(list(at(d, "Dimensions"))[0])
			for _, m := range list(at(d, "Metrics")) {
				name := metricName(at(m, "Name").(string), dimensions...)
				all[name] = append(all[name], "")
				for _, dimension := range dimensions {
					all[name] = append(all[name], dimension+"="+fmt.Sprint(line[dimension]))
				}
			}
		}
	}
	for _, m := range w.stage.Inbox.Metrics() {
		dimensions := slices.Sorted(maps.Keys(m.Dimensions))
		name := metricName(m.Name, dimensions...)
		all[name] = append(all[name], "")
		for _, dimension := range dimensions {
			all[name] = append(all[name], dimension+"="+m.Dimensions[dimension])
		}
	}
	return all
}

var searched = regexp.MustCompile(`SEARCH\('\{"` + stackName + `",([A-Za-z,]+)\} MetricName="([A-Za-z]+)"`)

// checkMetrics: what alarms and dashboard watch in our namespace is what the
// functions write, by the same names and dimensions.
func (w *world) checkMetrics() {
	w.t.Helper()
	written := w.written()
	watched := 0
	want := func(where, metric string, values ...string) {
		watched++
		check.That(w.t, written[metric] != nil, "%s watches %q, which no function writes", where, metric)
		for _, v := range values {
			check.That(w.t, slices.Contains(written[metric], v), "%s watches %q with %s, which no function writes", where, metric, v)
		}
	}
	for _, name := range w.stack.ofType("AWS::CloudWatch::Alarm") {
		if w.stack.get(name, "Namespace") == stackName {
			var dimensions, values []string
			for _, d := range list(w.stack.get(name, "Dimensions")) {
				dimensions = append(dimensions, at(d, "Name").(string))
				values = append(values, fmt.Sprint(at(d, "Name"), "=", at(d, "Value")))
			}
			want(name, metricName(w.stack.get(name, "MetricName").(string), dimensions...), values...)
		}
	}
	var dashboard any
	check.OK(w.t, json.Unmarshal([]byte(w.stack.get("Dashboard", "DashboardBody").(string)), &dashboard))
	walk(dashboard, func(o object) {
		if expression, ok := o["expression"].(string); ok {
			found := searched.FindStringSubmatch(expression)
			if found == nil {
				w.t.Errorf("the dashboard has %s", expression)
				return
			}
			want("the dashboard", metricName(found[2], strings.Split(found[1], ",")...))
		}
		// A metric is [namespace, name, {...}], where "." repeats what stands above it.
		namespace := ""
		for _, m := range list(o["metrics"]) {
			if head, ok := list(m)[0].(string); ok {
				if head != "." {
					namespace = head
				}
				if namespace == stackName {
					want("the dashboard", list(m)[1].(string))
				}
			}
		}
	})
	check.That(w.t, watched >= 12, "only %d metrics of ours are watched", watched)
}

// What a query of CloudWatch Logs Insights reads, of which log.
var (
	source    = regexp.MustCompile(`^SOURCE '<([A-Za-z]+)Logs>' \| filter msg = '([a-z]+)'`)
	arguments = regexp.MustCompile(`(?:sum|ispresent)\(([a-z_.]+)\)`)
	lists     = regexp.MustCompile(`\b(?:by|fields) ([a-z_., @]+) \|`)
)

// checkQueries: the dashboard's queries find what they ask for in the functions' logs.
func (w *world) checkQueries() {
	w.t.Helper()
	var dashboard any
	check.OK(w.t, json.Unmarshal([]byte(w.stack.get("Dashboard", "DashboardBody").(string)), &dashboard))
	asked := map[string]int{}
	walk(dashboard, func(o object) {
		query, ok := o["query"].(string)
		if !ok {
			return
		}
		from := source.FindStringSubmatch(query)
		if from == nil || w.logs[from[1]] == nil {
			w.t.Errorf("the dashboard asks %s", query)
			return
		}
		var fields []string
		for _, found := range arguments.FindAllStringSubmatch(query, -1) {
			fields = append(fields, found[1])
		}
		for _, found := range lists.FindAllStringSubmatch(query, -1) {
			fields = append(fields, strings.Split(found[1], ", ")...)
		}
		lines := buffer.Lines(w.t, w.logs[from[1]].String())
		for _, field := range fields {
			if field == "@timestamp" { // CloudWatch's own
				continue
			}
			asked[from[1]]++
			if !slices.ContainsFunc(lines, func(line object) bool { return line["msg"] == from[2] && at(line, strings.Split(field, ".")...) != nil }) {
				w.t.Errorf("the dashboard asks for %s, which no line %q of %s has", field, from[2], from[1])
			}
		}
	})
	check.That(w.t, asked["Generate"] >= 4 && asked["SpendAlarm"] >= 4, "the dashboard asks for %v fields", asked)
}

// checkTables: the template's tables have the keys of those on which everything else
// is tested, and items expire by the attribute that it names.
func (w *world) checkTables() {
	w.t.Helper()
	db := engine.Client(enginetest.URL())
	for table, ref := range w.tables {
		resource := strings.TrimSuffix(strings.Trim(ref, "<>"), ".Arn")
		out, err := db.DescribeTable(w.t.Context(), &dynamodb.DescribeTableInput{TableName: &table})
		check.OK(w.t, err)
		var keys, attributes []any
		for _, k := range out.Table.KeySchema {
			keys = append(keys, object{"AttributeName": aws.ToString(k.AttributeName), "KeyType": string(k.KeyType)})
		}
		for _, a := range out.Table.AttributeDefinitions {
			attributes = append(attributes, object{"AttributeName": aws.ToString(a.AttributeName), "AttributeType": string(a.AttributeType)})
		}
		var p problems
		p.equal("keys of "+resource, w.stack.get(resource, "KeySchema"), keys)
		p.equal("attributes of "+resource, w.stack.get(resource, "AttributeDefinitions"), attributes)
		for _, problem := range p {
			w.t.Error(problem)
		}

		items, err := db.Scan(w.t.Context(), &dynamodb.ScanInput{TableName: &table})
		check.OK(w.t, err)
		ttl, _ := w.stack.get(resource, "TimeToLiveSpecification", "AttributeName").(string)
		for _, item := range items.Items {
			pk := item["pk"].(*types.AttributeValueMemberS).Value
			_, expires := item[ttl].(*types.AttributeValueMemberN)
			// There is one of each, and one for each pool.
			check.That(w.t, expires || pk == "fuse" || pk == "alarm" || pk == "audit" || strings.HasPrefix(pk, "pool#"), "%s: %s never expires", resource, pk)
		}
	}
}
