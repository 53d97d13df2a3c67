// Asks tokenfuse through OpenAI's own client, until a limit says no.
//
//   node examples/openai.mjs [URL [FEATURE]]
//
// URL may also come from TOKENFUSE_URL. With a token in TOKENFUSE_TOKEN the
// caller is a user, without one anonymous:
//
//   export TOKENFUSE_TOKEN=$(go run ./cmd/tokenfuse token --sub 123)
import OpenAI from 'openai';

const [url = process.env.TOKENFUSE_URL ?? 'http://127.0.0.1:8787', feature = 'docqa'] = process.argv.slice(2);
const client = new OpenAI({
  baseURL: `${url}/v1`,
  apiKey: process.env.TOKENFUSE_TOKEN ?? 'anonymous', // the client insists on some key
});

function ask(question, options) {
  return client.chat.completions.create({
    model: feature, // clients name a feature; which model answers is up to tokenfuse
    messages: [{ role: 'user', content: question }],
    ...options,
  });
}

// What this caller may use.
const features = [];
for await (const model of client.models.list()) features.push(model.id);
console.log(`features: ${features.join(', ')}`);

// An answer in one piece.
const answer = await ask('What is a token bucket?');
console.log(`answer: ${answer.choices[0].message.content}`);
console.log(`it took ${answer.usage.total_tokens} tokens`);

// The same word by word.
const stream = await ask('What is a token bucket?', { stream: true, stream_options: { include_usage: true } });
process.stdout.write('stream: ');
let usage;
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta.content ?? '');
  usage = chunk.usage ?? usage;
}
console.log(`\nit took ${usage.total_tokens} tokens`);

// And on, with long questions, until it is enough.
for (let call = 1; ; call++) {
  try {
    const { usage } = await ask('Why? '.repeat(300));
    console.log(`call ${call}: ${usage.total_tokens} tokens`);
  } catch (error) {
    if (!(error instanceof OpenAI.APIError)) throw error;
    // The client has obeyed x-should-retry: it tries again by itself after a
    // short wait, and leaves a long one to you.
    console.log(`call ${call}: ${error.constructor.name}: ${error.message}`);
    if (error instanceof OpenAI.RateLimitError) {
      const { limit, requested, remaining, retry_after_seconds: wait } = error.error;
      console.log(`limit ${limit}: ${requested} requested, ${remaining} remaining, wait ${wait} s`);
    }
    break;
  }
}
