package provider

import (
	"net/http"
	"slices"
)

// neverBilled are statuses, besides redirects, of requests that no model has seen:
// turned away at the door, or for want of capacity.
var neverBilled = []int{
	http.StatusUnauthorized,
	http.StatusPaymentRequired,
	http.StatusForbidden,
	http.StatusNotFound,
	http.StatusMethodNotAllowed,
	http.StatusRequestEntityTooLarge,
	http.StatusUnsupportedMediaType,
	http.StatusTooManyRequests,
	http.StatusServiceUnavailable,
	529, // Anthropic's "overloaded"
}

// billedBySome are statuses that come before or after the model has worked. Some
// servers charge for them: Azure OpenAI for a prompt that it filtered, a proxy for
// what it had asked of somebody else.
var billedBySome = []int{
	http.StatusBadRequest,
	http.StatusUnprocessableEntity,
	http.StatusInternalServerError,
	http.StatusBadGateway,
}

// modelFailed are the codes of AWS exceptions after which the model has worked,
// whatever their status.
var modelFailed = []string{"ModelTimeoutException", "ModelErrorException", "ModelStreamErrorException"}

// mayBill reports whether a call that was answered with an error status and a code
// may be charged by a provider that charges for billedBySome or does not. Whatever is
// not known to be free may be charged: 408, 499, 504 and 524, for example, say that
// somebody gave up waiting while the model may run on.
func mayBill(status int, code string, billsErrors bool) bool {
	switch {
	case slices.Contains(modelFailed, code):
		return true
	case status >= 300 && status < 400, slices.Contains(neverBilled, status):
		return false
	case slices.Contains(billedBySome, status):
		return billsErrors
	}
	return true
}
