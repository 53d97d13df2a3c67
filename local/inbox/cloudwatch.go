package inbox

import (
	"encoding/json"
	"net/http"
	"strings"
)

// putMetricData is CloudWatch PutMetricData in AWS's JSON. Of the forms that a datum may
// have it knows single values.
func (b *Inbox) putMetricData(w http.ResponseWriter, r *http.Request) {
	metrics, problem := b.readMetrics(r)
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	if problem != "" {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"__type": "com.amazonaws.cloudwatch#InvalidParameterValueException", "message": problem})
		return
	}
	add(b, &b.metrics, metrics...)
	_, _ = w.Write([]byte("{}"))
}

func (b *Inbox) readMetrics(r *http.Request) (metrics []Metric, problem string) {
	body, err := readBody(r)
	if err != nil {
		return nil, "The body cannot be read."
	}
	if !strings.HasSuffix(r.Header.Get(target), ".PutMetricData") {
		return nil, "This stand-in only knows PutMetricData."
	}
	var in struct {
		Namespace  string
		MetricData []struct {
			MetricName, Unit string
			Value            *float64
			Dimensions       []struct{ Name, Value string }
		}
	}
	if json.Unmarshal(body, &in) != nil {
		return nil, "The body is not JSON."
	}
	if in.Namespace == "" || len(in.MetricData) == 0 {
		return nil, "Namespace or MetricData is missing."
	}
	for _, datum := range in.MetricData {
		if datum.MetricName == "" || datum.Value == nil {
			return nil, "A datum needs a MetricName and a Value."
		}
		m := Metric{Time: b.now().UTC(), Namespace: in.Namespace, Name: datum.MetricName, Value: *datum.Value, Unit: datum.Unit, Dimensions: map[string]string{}}
		for _, dimension := range datum.Dimensions {
			if dimension.Name == "" || dimension.Value == "" {
				return nil, "A dimension needs a Name and a Value."
			}
			m.Dimensions[dimension.Name] = dimension.Value
		}
		metrics = append(metrics, m)
	}
	return metrics, ""
}
