// OpenAI's own client asks for embeddings, in the ways that it has.
import OpenAI from 'openai';

const client = new OpenAI({ baseURL: `${process.env.TOKENFUSE_URL}/v1`, apiKey: 'anonymous', maxRetries: 0 });
const show = (name, what) => console.log(`${name}: ${JSON.stringify(what)}`);
const failed = async (name, asked) => show(name, await asked.then(() => 'it worked', (e) => [e.constructor.name, e.code, e.param, e.error?.message]));
const near = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);

const input = ['a token bucket holds tokens', 'the bucket holds water', 'fuses blow'];
const { data: coded, response } = await client.embeddings.create({ model: 'search', input }).withResponse(); // as base64, which it decodes
const [a, b, c] = coded.data.map((d) => d.embedding);
show('vectors', [coded.object, coded.model, coded.data.length, a.length, near(a, b) > near(a, c), Math.abs(near(a, a) - 1) < 1e-3]);
show('usage', [coded.usage, response.headers.get('x-ratelimit-remaining-tokens'), response.headers.get('x-max-output-tokens')]);
const plain = await client.embeddings.create({ model: 'search', input, encoding_format: 'float' });
show('as numbers', plain.data.every((d, i) => d.index === i && d.embedding.every((x, j) => Math.fround(x) === Math.fround(coded.data[i].embedding[j]))));
const short = await client.embeddings.create({ model: 'search', input: input[2], dimensions: 8, user: 'u' });
show('dimensions', [short.data.length, short.data[0].embedding.length]);
const model = await client.models.retrieve('search');
show('model', [model.max_inputs, model.max_input_chars, 'max_messages' in model]);

await failed('tokens', client.embeddings.create({ model: 'search', input: [[1212, 318]] }));
await failed('too many', client.embeddings.create({ model: 'search', input: ['a', 'b', 'c', 'd'] }));
await failed('too long', client.embeddings.create({ model: 'search', input: 'a'.repeat(2001) }));
await failed('chat', client.chat.completions.create({ model: 'search', messages: [{ role: 'user', content: 'Hi' }] }));
await failed('response', client.responses.create({ model: 'search', input: 'Hi', store: false }));
await failed('fails', client.embeddings.create({ model: 'search', input: '[[fail:500]]' }));
await failed('is cut', client.embeddings.create({ model: 'search', input: '[[fail:cut]]' }));
