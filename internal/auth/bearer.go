package auth

import "strings"

// Bearer takes the token from the values of a request's Authorization headers.
// No header, an empty one, `Bearer` without a token and `Bearer anonymous` are
// an anonymous caller: client libraries insist on sending some key. Everything
// else must be one header with one token of the Bearer scheme (its name in any
// case, RFC 9110), or is ErrInvalid: a caller who meant to be somebody is never
// taken for nobody.
func Bearer(header []string) (token string, anonymous bool, err error) {
	switch len(header) {
	case 0:
		return "", true, nil
	case 1:
	default:
		return "", false, refuse(SeveralHeaders)
	}
	value := strings.Trim(header[0], " \t")
	if value == "" {
		return "", true, nil
	}
	scheme, token, _ := strings.Cut(value, " ")
	if isProviderKey(value) {
		return "", false, refuse(ProviderKey)
	}
	if !strings.EqualFold(scheme, "Bearer") {
		return "", false, refuse(NotBearer)
	}
	token = strings.TrimLeft(token, " ")
	if token == "" || token == "anonymous" {
		return "", true, nil
	}
	if isProviderKey(token) {
		return "", false, refuse(ProviderKey)
	}
	if !jwtCharacters(token) {
		return "", false, noJWT(token)
	}
	return token, false, nil
}

// noJWT refuses what cannot be a JWT, or is a malformed one.
func noJWT(token string) error {
	if strings.Count(token, ".") != 2 {
		return refuse(Opaque)
	}
	return refuse(Malformed)
}

// isProviderKey recognises keys of model providers by how they begin, which no JWT does.
// Clients take them from the environment and send them wherever they are pointed.
func isProviderKey(token string) bool {
	for _, prefix := range [...]string{"sk-", "sk_", "AIza", "gsk_", "xai-", "pplx-", "hf_", "r8_", "fw_", "nvapi-"} {
		if strings.HasPrefix(token, prefix) {
			return true
		}
	}
	return false
}

// jwtCharacters says whether s has only the characters of a JWT: base64url
// without padding, and dots. Go's base64 decoder skips line breaks, so that
// without this one token could be written in many ways.
func jwtCharacters(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return true
}
