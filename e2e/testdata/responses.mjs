// Asks for responses with OpenAI's own client and its helpers. Prints a line for each.
import { isDeepStrictEqual } from 'node:util';
import OpenAI from 'openai';
import { zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';

const client = new OpenAI({ baseURL: `${process.env.TOKENFUSE_URL}/v1`, apiKey: 'anonymous', maxRetries: 0 });
const show = (name, value) => console.log(`${name}: ${JSON.stringify(value)}`);
const failed = async (name, asked) => show(name, await asked.then(() => 'it worked', (e) => [e.constructor.name, e.code, e.param, e.error?.message]));
const request = { model: 'ask', input: 'Hi' };
const brief = (r) => [r.status, r.incomplete_details?.reason ?? null, r.output_text.slice(0, 7), r.usage.output_tokens > 0, r.store];

const whole = await client.responses.create({ ...request, instructions: 'Be brief.' });
show('create', [...brief(whole), whole.model, whole.instructions]);

// What is streamed, put together, is what a whole answer is.
const same = async (name, more) => {
  const { output } = await client.responses.create({ ...request, ...more });
  const stream = client.responses.stream({ ...request, ...more });
  const seen = [];
  for await (const event of stream) if (seen.at(-1) !== event.type) seen.push(event.type);
  const final = await stream.finalResponse();
  const bare = (list) => JSON.stringify(list, (key, value) => (['id', 'call_id', 'parsed', 'parsed_arguments'].includes(key) ? undefined : value));
  show(name, [...brief(final), bare(final.output) === bare(output), final.limits?.[0].name, seen.length, seen.at(-1)]);
};
await same('stream');
await same('cut', { max_output_tokens: 4 });
await same('reasoning', { input: '[[think]] Hi' });

// Formats.
const text = { format: zodTextFormat(z.object({ a: z.number() }), 'answer') };
show('parse', typeof (await client.responses.parse({ ...request, text })).output_parsed.a);
show('parsed stream', typeof (await client.responses.stream({ ...request, text }).finalResponse()).output_parsed.a);

// A conversation goes on with what was answered, as the client keeps it.
const input = [{ role: 'user', content: 'Hi' }];
for (const ask of [(r) => client.responses.create(r), (r) => client.responses.parse({ ...r, text }), (r) => client.responses.stream(r).finalResponse()]) {
  const { output } = await ask({ model: 'ask', input, store: false, include: ['reasoning.encrypted_content'] });
  input.push(...output, { role: 'user', content: '[[think]] More' });
}
show('turns', (await client.responses.create({ model: 'ask', input })).output_text.match(/messages \d+/)[0]);

// Calls of functions, of which one is answered after the other and several at a time.
const weather = zodResponsesFunction({ name: 'get_weather', parameters: z.object({ city: z.string() }) });
const plain = { type: 'function', name: 'get_weather', strict: true, parameters: weather.parameters };
const agent = async (name, ask, tool, question) => {
  const turns = [{ role: 'user', content: question }];
  let calls, asked = 0, answer;
  do {
    answer = await ask({ model: 'ask', input: turns, tools: [tool] });
    calls = answer.output.filter((item) => item.type === 'function_call');
    turns.push(...answer.output, ...calls.map(({ call_id }, i) => ({ type: 'function_call_output', call_id, output: `${17 + i} degrees` })));
    asked += calls.filter((c) => typeof (c.parsed_arguments ?? JSON.parse(c.arguments)).city === 'string').length;
  } while (calls.length > 0);
  show(name, [asked, answer.output_text.match(/figures: [\d, ]+/)[0], isDeepStrictEqual(answer.tools, [plain])]);
};
await agent('tools', (r) => client.responses.create(r), plain, 'The weather?');
await agent('tools streamed', (r) => client.responses.stream(r).finalResponse(), plain, '[[tools:2]] The weather?');
await agent('tools parsed', (r) => client.responses.parse(r), weather, '[[tools:2]] The weather?');
await same('call', { input: 'The weather?', tools: [plain] });
await same('forced', { tools: [plain], tool_choice: { type: 'function', name: 'get_weather' } });

// A picture, and as much reasoning as there is.
const image = { type: 'input_image', detail: 'low', image_url: 'data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs=' };
const seen = await client.responses.create({ model: 'ask', input: [{ role: 'user', content: [{ type: 'input_text', text: 'What?' }, image] }] });
show('image', seen.output_text.match(/picture of \d+ x \d+/)[0]);
const { data, response } = await client.responses.create({ ...request, reasoning: { effort: 'high', summary: 'auto' } }).withResponse();
show('effort', [data.reasoning.effort, data.usage.output_tokens_details.reasoning_tokens, response.headers.get('x-input-cut')]);

// Refusals and failures.
await failed('reference', client.responses.create({ model: 'ask', input: [{ type: 'item_reference', id: whole.output[0].id }] }));
await failed('previous', client.responses.create({ ...request, previous_response_id: whole.id }));
await failed('hosted', client.responses.create({ ...request, tools: [{ type: 'web_search' }] }));
await failed('fails', client.responses.create({ ...request, input: '[[fail:500]]' }));
await failed('fails before it begins', client.responses.stream({ ...request, input: '[[fail:empty]]' }).finalResponse());
await failed('breaks off', client.responses.stream({ ...request, input: '[[fail:cut]]' }).finalResponse());
await failed('retrieve', client.responses.retrieve(whole.id));
