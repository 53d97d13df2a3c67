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
  const calls = new Map();
  const show = (message, whole) => {
    text += shown(message?.content);
    if (!Array.isArray(message?.tool_calls)) return;
    message.tool_calls.forEach((call, i) => {
      const at = whole ? i : call?.index ?? call?.id ?? i, { name, arguments: more } = call?.function ?? {};
      const known = calls.get(at) ?? { named: typeof name === 'string' && name !== '', said: '' };
      if (typeof more === 'string') known.said += more;
      calls.set(at, known);
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
  process.stdout.write(JSON.stringify({ text, calls: [...calls.values()].filter((c) => c.named).map((c) => c.said) }) + '\n');
}
