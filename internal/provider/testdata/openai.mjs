// Reads answers with OpenAI's own client and tells what it shows of them: a line of
// {body, stream} in, a line of {text} out.
import { createInterface } from 'node:readline';
import OpenAI from 'openai';

console.error = () => {};
let body = '', stream = false;
const client = new OpenAI({
  baseURL: 'http://model.invalid/v1', apiKey: 'none', maxRetries: 0, logLevel: 'off',
  fetch: async () => new Response(body, { headers: { 'content-type': stream ? 'text/event-stream' : 'application/json' } }),
});
const shown = (content) => (typeof content === 'string' || typeof content === 'number' ? String(content) : '');

for await (const line of createInterface({ input: process.stdin })) {
  ({ body, stream } = JSON.parse(line));
  let text = '';
  try {
    const answer = await client.chat.completions.create({ model: 'm', messages: [], stream });
    if (stream) {
      for await (const chunk of answer) text += shown(chunk?.choices?.[0]?.delta?.content);
    } else {
      text = shown(answer?.choices?.[0]?.message?.content);
    }
  } catch {} // what was shown before stays
  process.stdout.write(JSON.stringify({ text }) + '\n');
}
