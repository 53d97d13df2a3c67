// Talks with OpenAI's own helpers for several turns, sending back what they gave, and asks
// in the ways in which clients are set up wrong. Prints a line for each.
import OpenAI from 'openai';
import { makeParseableResponseFormat } from 'openai/lib/parser';

const url = process.env.TOKENFUSE_URL;
const make = (baseURL, apiKey = 'anonymous') => new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const client = make(`${url}/v1`);
const user = (content) => ({ role: 'user', content });
const show = (name, value) => console.log(`${name}: ${JSON.stringify(value)}`);

// Each way to get a message, and to send it back.
const format = makeParseableResponseFormat(
  { type: 'json_schema', json_schema: { name: 'a', schema: { type: 'object' }, strict: null, description: null } }, JSON.parse);
const ways = {
  create: (messages) => client.chat.completions.create({ model: 'ask', messages }).then((c) => c.choices[0].message),
  stream: (messages) => client.chat.completions.stream({ model: 'ask', messages }).finalMessage(),
  parse: (messages) => client.chat.completions.parse({ model: 'ask', messages, response_format: format }).then((c) => c.choices[0].message),
  'parsed stream': (messages) => client.chat.completions.stream({ model: 'ask', messages, response_format: format }).finalMessage(),
};
for (const [way, ask] of Object.entries(ways)) {
  const messages = [];
  for (const question of ['refuse', 'answer', 'answer']) {
    messages.push({ ...user(question), name: 'ann' });
    messages.push(await ask(messages));
  }
  show(way, messages.filter((m) => m.role === 'assistant').map((m) => m.refusal ?? m.content));
}

// Unset options, as frameworks send them.
const unset = { reasoning_effort: null, verbosity: null, prediction: null, tools: null, tool_choice: null, stop: null, response_format: null };
show('unset', (await client.chat.completions.create({ model: 'ask', messages: [{ ...user('answer'), tool_call_id: null }], ...unset })).choices[0].message.content);

// A long chat of an anonymous caller goes on.
const long = await client.chat.completions.create({ model: 'ask', messages: Array(17).fill(user('answer')) }).withResponse();
show('17 messages', [long.data.choices[0].message.content, long.response.headers.get('x-input-truncated')]);

// Base URLs.
for (const base of ['/v1/', '//v1', '/v1//']) {
  const model = await make(url + base).models.retrieve('ask');
  const answer = await make(url + base).chat.completions.create({ model: 'ask', messages: [user('answer')] });
  show(base, [model.id, answer.choices[0].message.content]);
}
const failed = async (name, asked) => show(name, await asked.then(() => 'it worked', (e) => [e.constructor.name, e.code, e.error?.message]));
const hello = { model: 'ask', messages: [user('answer')] };
await failed('no such model', client.models.retrieve('gpt-4.1'));
await failed('no /v1', make(url).chat.completions.create(hello));
await failed('embeddings', client.embeddings.create({ model: 'ask', input: 'x' }));
await failed('responses', client.responses.retrieve('resp_1'));
await failed('completions', client.completions.create({ model: 'ask', prompt: 'x' }));
await failed('tools', client.chat.completions.create({ ...hello, tools: [{ type: 'function', function: { name: 'f' } }], tool_choice: 'required' }));
await failed('tool_choice', client.chat.completions.create({ ...hello, tool_choice: { type: 'function', function: { name: 'f' } } }));
await failed('key', make(`${url}/v1`, 'sk-proj-4711').chat.completions.create(hello));
await failed('token', make(`${url}/v1`, 'a.b.4711').chat.completions.create(hello));
