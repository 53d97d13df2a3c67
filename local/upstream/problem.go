package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// problem is an answer that refuses a request. A param or a code of "" is null.
type problem struct {
	status                     int
	kind, param, code, message string
}

const invalidRequest = "invalid_request_error"

var (
	notFound         = &problem{http.StatusNotFound, invalidRequest, "", "not_found", "Unknown route."}
	methodNotAllowed = &problem{http.StatusMethodNotAllowed, invalidRequest, "", "method_not_allowed", "Not allowed to use this method here."}
	tooLarge         = &problem{http.StatusRequestEntityTooLarge, invalidRequest, "", "body_too_large", "The body is too large."}
	notJSON          = &problem{http.StatusBadRequest, invalidRequest, "", "invalid_json", "The body is not a JSON object."}
	mediaType        = &problem{http.StatusUnsupportedMediaType, invalidRequest, "", "unsupported_media_type", "Content-Type must be application/json."}
	serverError      = &problem{http.StatusInternalServerError, "server_error", "", "server_error", "The server had an error while processing your request."}
	rateLimited      = &problem{http.StatusTooManyRequests, "requests", "", "rate_limit_exceeded", "Rate limit reached. Please try again in 1s."}
)

// failing is the answer that fails with a status, though nothing is wrong.
func failing(status int) *problem {
	switch {
	case status == serverError.status:
		return serverError
	case status == rateLimited.status:
		return rateLimited
	case status < 500:
		return &problem{status, invalidRequest, "", "made_to_fail", "The request was made to fail."}
	}
	return &problem{status, "server_error", "", "made_to_fail", "The request was made to fail."}
}

func invalid(param, code, format string, args ...any) *problem {
	return &problem{http.StatusBadRequest, invalidRequest, param, code, fmt.Sprintf(format, args...)}
}

// misplaced is for what may not stand where it does. OpenAI has no code for it.
func misplaced(param, format string, args ...any) *problem {
	return invalid(param, "", format, args...)
}

func missing(param string) *problem {
	return invalid(param, "missing_required_parameter", "Missing required parameter: '%s'.", param)
}

func unknown(param string) *problem {
	return invalid(param, "unknown_parameter", "Unknown parameter: '%s'.", param)
}

func tooFew(param string) *problem {
	return invalid(param, "empty_array", "Invalid '%s': empty array. Expected an array with minimum length 1, but got an empty array instead.", param)
}

func tooMany(param string, got, most int) *problem {
	return invalid(param, "array_above_max_length",
		"Invalid '%s': array too long. Expected an array with maximum length %d, but got an array with length %d instead.", param, most, got)
}

// shorterThan refuses a text of more characters.
func shorterThan(param, text string, most int) *problem {
	if n := len([]rune(text)); n > most {
		return invalid(param, "string_above_max_length",
			"Invalid '%s': string too long. Expected a string with maximum length %d, but got a string with length %d instead.", param, most, n)
	}
	return nil
}

// decode reads JSON that stands at param ("" for the body), of known fields only.
func decode(raw []byte, v any, param string) *problem {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		return nil
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		param = strings.Trim(param+"."+wrong.Field, ".")
		return invalid(param, "invalid_type", "Invalid type for '%s'.", param)
	}
	return invalid(param, "invalid_value", "%s.", err)
}

func refuse(w http.ResponseWriter, p *problem) {
	type details struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	d := details{Message: p.message, Type: p.kind}
	if p.param != "" {
		d.Param = &p.param
	}
	if p.code != "" {
		d.Code = &p.code
	}
	writeJSON(w, p.status, encode(map[string]details{"error": d}))
}
