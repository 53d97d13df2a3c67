// Package responses is the wire of OpenAI's Responses API, as far as it can be had without
// storing anything: requests, responses, and the events of a stream.
//
// It is a second spelling of what package openai says in chat completions, and has no rules
// of its own on what may be asked: a request is respelled as one for a chat completion and
// read by openai.ParseChat, so every bound there is a bound here, and whoever decides, counts
// and calls knows one form. What is found wrong is named as the caller wrote it. An answer is
// written from the deltas of a chat completion.
package responses
