// Reads answers with OpenAI's own client and tells what it shows of them: a line of
// {body, stream} in, a line of {text, calls} out: the arguments of each call that begins with its name.
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
  const all = [], calls = {};
  const show = (message, whole) => {
    text += shown(message?.content);
    if (!Array.isArray(message?.tool_calls)) return;
    message.tool_calls.forEach((call, i) => {
      const at = whole ? i : call?.index ?? call?.id ?? i, { name, arguments: more } = call?.function ?? {};
      if (typeof name === 'string' && name !== '') all.push(calls[at] = []);
      if (typeof more === 'string') calls[at]?.push(more);
    });
  };
  try {
    const answer = await client.chat.completions.create({ model: 'm', messages: [], stream });
    if (stream) {
      for await (const chunk of answer) show(chunk?.choices?.[0]?.delta, false);
    } else {
      show(answer?.choices?.[0]?.message, true);
    }
  } catch {} // what was shown before stays
  process.stdout.write(JSON.stringify({ text, calls: all.map((pieces) => pieces.join('')) }) + '\n');
}
