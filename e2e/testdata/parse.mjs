// Asks for JSON through OpenAI's own helpers, in one piece and streamed, and says what
// they understood; then goes on with the conversation, their message in it.
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';

const client = new OpenAI({ baseURL: `${process.env.TOKENFUSE_URL}/v1`, apiKey: 'anonymous' });

const Tree = z.object({ name: z.string(), get children() { return z.array(Tree); } });
const Answer = z.object({
  steps: z.array(z.object({ why: z.string(), result: z.number().int().min(3) })).min(2),
  choice: z.discriminatedUnion('kind', [z.object({ kind: z.literal('a'), at: z.iso.datetime() }), z.object({ kind: z.literal('b') })]),
  tree: Tree,
  maybe: z.string().nullable(),
  code: z.string().regex(/^[A-Z]{3}-\d+$/),
});
const messages = [{ role: 'user', content: 'Answer in JSON.' }];
const request = { model: 'ask', messages, response_format: zodResponseFormat(Answer, 'answer') };

const whole = await client.chat.completions.parse(request);
console.log(JSON.stringify(Answer.parse(whole.choices[0].message.parsed)));

let pieces = 0;
const stream = client.chat.completions.stream(request).on('content', () => pieces++);
const streamed = await stream.finalChatCompletion();
console.log(JSON.stringify(Answer.parse(streamed.choices[0].message.parsed)), pieces > 10);

messages.push(whole.choices[0].message, streamed.choices[0].message, { role: 'user', content: 'Again.' });
const free = await client.chat.completions.create({ ...request, response_format: { type: 'json_object' } });
console.log(typeof JSON.parse(free.choices[0].message.content).answer);
