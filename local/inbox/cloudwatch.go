package inbox

import (
	"net/http"

	"github.com/aws/smithy-go/encoding/cbor"
)

// putMetricData is CloudWatch PutMetricData, as the SDK speaks it: CBOR in and out.
// Of the forms that a datum may have it knows single values.
func (b *Inbox) putMetricData(w http.ResponseWriter, r *http.Request) {
	metrics, problem := b.readMetrics(r)
	w.Header().Set("Smithy-Protocol", "rpc-v2-cbor")
	w.Header().Set("Content-Type", "application/cbor")
	if problem != "" {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(cbor.Encode(cbor.Map{
			"__type":  cbor.String("com.amazonaws.cloudwatch#InvalidParameterValueException"),
			"message": cbor.String(problem),
		}))
		return
	}
	add(b, &b.metrics, metrics...)
	_, _ = w.Write(cbor.Encode(cbor.Map{}))
}

func (b *Inbox) readMetrics(r *http.Request) (metrics []Metric, problem string) {
	body, err := readBody(r)
	if err != nil {
		return nil, "The body cannot be read."
	}
	decoded, err := cbor.Decode(body)
	if err != nil {
		return nil, "The body is not CBOR."
	}
	in, _ := decoded.(cbor.Map)
	namespace, _ := in["Namespace"].(cbor.String)
	data, _ := in["MetricData"].(cbor.List)
	if namespace == "" || len(data) == 0 {
		return nil, "Namespace or MetricData is missing."
	}
	for _, v := range data {
		datum, _ := v.(cbor.Map)
		name, _ := datum["MetricName"].(cbor.String)
		unit, _ := datum["Unit"].(cbor.String)
		value, err := cbor.AsFloat64(datum["Value"])
		if name == "" || err != nil {
			return nil, "A datum needs a MetricName and a Value."
		}
		m := Metric{Time: b.now().UTC(), Namespace: string(namespace), Name: string(name), Value: value, Unit: string(unit), Dimensions: map[string]string{}}
		dimensions, _ := datum["Dimensions"].(cbor.List)
		for _, v := range dimensions {
			dimension, _ := v.(cbor.Map)
			name, _ := dimension["Name"].(cbor.String)
			value, _ := dimension["Value"].(cbor.String)
			if name == "" || value == "" {
				return nil, "A dimension needs a Name and a Value."
			}
			m.Dimensions[string(name)] = string(value)
		}
		metrics = append(metrics, m)
	}
	return metrics, ""
}
