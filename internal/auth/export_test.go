package auth

// Forget forgets all tokens.
func (v *Verifier) Forget() { v.memory.known.Purge() }
