// Runs a program of docs/clients.md through calls that come as JSON on standard input:
//
//   node run.mjs PROGRAM <<< '[{"url": …, "token": …, "call": "ask", "question": …}]'
//
// and prints for each, as a line of JSON, what it gave or what it was refused with.
import { text as read } from 'node:stream/consumers';
import { pathToFileURL } from 'node:url';

const schema = {
  type: 'object',
  properties: { city: { type: 'string' }, people: { type: 'integer' } },
  required: ['city', 'people'],
  additionalProperties: false,
};
const program = pathToFileURL(process.argv[2]);
for (const [i, { url, token, call, question }] of JSON.parse(await read(process.stdin)).entries()) {
  process.env.TOKENFUSE_URL = url;
  delete process.env.TOKENFUSE_TOKEN;
  if (token) process.env.TOKENFUSE_TOKEN = token;
  const client = await import(`${program}?${i}`);
  const got = { text: '' };
  try {
    if (call === 'ask') Object.assign(got, await client.ask(question));
    else if (call === 'stream') Object.assign(got, await client.stream(question, piece => { got.text += piece; }));
    else if (call === 'post') {
      const answer = await client.answer(new Request(url, { method: 'POST', body: question }), JSON.parse(question).visitor);
      got.text = await answer.text();
    } else if (call === 'budget') {
      const headers = { 'Content-Type': 'application/json', Authorization: `Bearer ${token}` };
      const answer = await fetch(`${url}/v1/chat/completions`, { method: 'POST', headers, body: question });
      got.text = JSON.stringify([client.ofHeaders(answer.headers), await client.now(url, headers)]);
    } else got.found = await client.json(question, schema);
  } catch (error) {
    got.thrown = String(error);
    try { got.refusal = client.refusal(error); } catch { /* thrown says what it is */ }
  }
  console.log(JSON.stringify(got));
}
