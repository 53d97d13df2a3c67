package tokens

// framing is what a chat costs beyond the texts of its messages, in tokens.
type framing struct {
	perMessage int
	perReply   int
}

// OpenAI's cookbook ("How to count tokens with tiktoken") counts a chat as 3 for
// each message, plus the tokens of its role and of its content, plus 3 with
// which the reply is primed. Each role is one token in both encodings.
var openAIFraming = framing{perMessage: 3 + 1, perReply: 3}

// boundFraming is for templates that we do not know: control tokens around the
// role and the content, line breaks, and a role that takes several tokens. Many templates
// begin with a prompt of their own, whoever asks: that of gpt-oss takes 63 tokens more than
// a message does, that of Llama 3 takes 30 (testkit/usage has the answers).
var boundFraming = framing{perMessage: 12, perReply: 64}

// PerMessage gives the tokens that a message costs beyond those of its content:
// its role and what delimits it.
func (t *Tokenizer) PerMessage() int { return t.framing.perMessage }

// PerReply gives the tokens that open the conversation and the reply. They count as input,
// once for each call.
func (t *Tokenizer) PerReply() int { return t.framing.perReply }
