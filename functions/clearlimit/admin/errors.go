package admin

import "github.com/tokenfuse/tokenfuse/internal/openai"

// unavailable is a failure of the store, worth another try in a second.
func unavailable(r *request, cause error) *openai.Error {
	r.log.Error("the store failed", "error", cause)
	return openai.Unavailable(openai.StoreUnavailable, "The store cannot be reached at the moment. Try again.")
}
