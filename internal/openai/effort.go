package openai

// Efforts are the words for how much a model should reason, from the least on.
var Efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh"}
