// Package openai is the wire that clients and servers of OpenAI's chat completions
// speak: requests, completions and their chunks, and errors. Each has its form here
// once, for the functions that answer in it and for the client that calls providers
// in it.
//
// What a caller sends is read strictly: known fields only, in their exact case, each
// once, each within its bounds. What is read is all that goes further, so a request
// that is encoded again holds nothing that was not checked. It is liberal in what costs
// nothing: a member that is null is absent, and a message is taken back in the forms in
// which official clients keep what they got, labels and all. An image is what its content
// says, of which no more than the header is decoded. What a provider sends is read in
// package provider, which forgives what compatible servers do differently.
package openai
