// Tries web/client against two products: node fuse.mjs CHALLENGING CUT_OFF TOKEN, with packages beside it.
import assert from 'node:assert/strict';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI } from '@langchain/openai';
import { generateText } from 'ai';

const [client, challenging, cutOff, token] = process.argv.slice(2);
const { createFuse, explain } = await import(client);
const sent = [], real = globalThis.fetch;
const counted = async (...args) => {
  const request = new Request(...args);
  const response = await real(request);
  const path = new URL(request.url).pathname;
  // Told to come again, a client does right to.
  if (response.headers.get('x-should-retry') !== 'true') sent.push(`${request.method} ${path} ${response.status}`);
  return response;
};
globalThis.fetch = counted;
const count = text => sent.filter(s => s === text).length;
const messages = [{ role: 'user', content: 'Hi' }], chat = '/v1/chat/completions';
const versions = await Promise.all([4, 5, 6, 7].map(async n => [n, (await import(`openai${n}`)).default]));
const openai = (OpenAI, fuse) => new OpenAI({ baseURL: fuse.baseURL, apiKey: 'any', fetch: fuse.fetch });

// Five calls at once solve one challenge; a pass that is no longer good is renewed, and
// another tab has it.
const storage = new Map();
globalThis.localStorage = { getItem: k => storage.get(k) ?? null, setItem: (k, v) => { storage.set(k, v); } };
const outcomes = [], onChallenge = solved => outcomes.push(solved);
const asking = createFuse({ baseURL: `${challenging}/v1/`, onChallenge }), sdk = openai(versions[3][1], asking);
const ask = () => sdk.chat.completions.create({ model: 'docqa', messages, max_tokens: 1 });
const five = await Promise.allSettled(Array.from({ length: 5 }, ask));
assert.equal(count('POST /v1/challenge 200'), 1);
assert.ok(count(`POST ${chat} 403`) <= 5 && five.some(r => r.status === 'fulfilled'), JSON.stringify([sent, five]));
for (const { reason } of five) if (reason) assert.equal(reason.code, 'insufficient_quota');
const [[name, first]] = storage;
storage.set(name, 'expired');
await ask().catch(error => assert.equal(error.code, 'insufficient_quota'));
assert.equal(count('POST /v1/challenge 200'), 2);
assert.ok(storage.get(name) !== first && storage.get(name) !== 'expired');
sent.length = 0;
await openai(versions[3][1], createFuse({ baseURL: `${challenging}/v1` })).chat.completions.create({ model: 'docqa', messages }).catch(error => assert.equal(error.code, 'insufficient_quota'));
assert.ok(sent.length === 1 && !sent[0].endsWith('403'), String(sent));

// A page's own way to solve: what it gives is sent; without it, or when the caller has left, the
// refusal stands, and nobody is told of a pass. A challenge of another kind is the page's alone.
// What refuses a solution is handed back.
storage.clear();
const leaving = new AbortController(), post = `POST /v1/challenge`;
const solving = solve => createFuse({ baseURL: `${challenging}/v1`, solve, onChallenge });
const init = signal => ({ method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ model: 'docqa', messages }), signal });
sent.length = 0;
const stands = await solving(async () => undefined).fetch(`${challenging}${chat}`, init());
assert.deepEqual([stands.status, (await stands.json()).error.code], [403, 'challenge_required']);
await assert.rejects(solving(async () => { leaving.abort(); return 'any'; }).fetch(`${challenging}${chat}`, init(leaving.signal)), { name: 'AbortError' });
globalThis.fetch = async (...args) => (String(args[0].url ?? args[0]).endsWith('/challenge') ? Response.json({ kind: 'turnstile', site_key: 'k' }) : real(...args));
const shown = await createFuse({ baseURL: `${challenging}/v1`, onChallenge }).fetch(`${challenging}${chat}`, init());
assert.equal((await shown.json()).error.code, 'challenge_required');
globalThis.fetch = counted;
assert.ok(!sent.some(s => s.startsWith(post)), String(sent));
const { solve } = await import(new URL('solver.js', new URL(client, 'file:')));
const given = await solving(solve).fetch(`${challenging}${chat}`, init());
assert.deepEqual([given.status, (await given.json()).error.limit], [429, 'passes']); // two were bought above
assert.ok(sent.includes(`${post} 429`), String(sent));
assert.deepEqual(await Promise.all(outcomes), [true, true, false, false, false, false]);

// The budget: without a call, of headers, of a stream's last chunk, of the last event of a response.
const user = createFuse({ baseURL: `${cutOff}/v1`, token: async () => token }), told = [];
const end = user.subscribe(budget => told.push(budget));
assert.equal((await user.refresh()).requests, undefined);
const start = user.budget.tokens, mine = openai(versions[3][1], user);
await mine.chat.completions.create({ model: 'docqa', messages, max_tokens: 1 });
assert.ok(user.budget.tokens < start && user.budget.docqa === 2, JSON.stringify(told));
let text = '', chunkLimits;
for await (const chunk of await mine.chat.completions.create({ model: 'docqa', messages, stream: true })) {
  text += chunk.choices[0]?.delta.content ?? '';
  chunkLimits = chunk.limits ?? chunkLimits;
}
assert.match(text, /^This is the built-in/);
assert.deepEqual(user.budget, Object.fromEntries(chunkLimits.map(l => [l.name, l.remaining])));
let last;
for await (const event of await mine.responses.create({ model: 'docqa', input: 'Hi', stream: true })) last = event;
assert.deepEqual(user.budget, Object.fromEntries(last.response.limits.map(l => [l.name, l.remaining])));
end();
const heard = told.length;
await user.refresh();
assert.equal(told.length, heard);

// A refusal is final for each SDK: now the quota (429), and the fuse (503) for anybody else.
const german = { insufficient_quota: r => `Noch ${r.retry_after_seconds} s` };
for (const [fuse, status, code] of [[user, 429, 'insufficient_quota'], [createFuse({ baseURL: `${cutOff}/v1` }), 503, 'fuse_open']]) {
  const calls = Object.fromEntries(versions.map(([n, OpenAI]) => [`openai${n}`, () => openai(OpenAI, fuse).chat.completions.create({ model: 'docqa', messages })]));
  calls.ai = () => generateText({ model: createOpenAICompatible({ name: 't', baseURL: fuse.baseURL, fetch: fuse.fetch })('docqa'), prompt: 'Hi' });
  calls.langchain = () => new ChatOpenAI({ model: 'docqa', apiKey: 'any', configuration: { baseURL: fuse.baseURL, fetch: fuse.fetch } }).invoke('Hi');
  const raw = await (await fuse.fetch(`${fuse.baseURL}/chat/completions`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ model: 'docqa', messages }) })).json();
  for (const [name, call] of Object.entries(calls)) {
    sent.length = 0;
    const error = await call().then(() => assert.fail(`${name}: answered`), e => e);
    assert.deepEqual(sent, [`POST ${chat} ${status}`], name);
    assert.match(explain(error), /You can ask again|try again|again/i, `${name}: ${explain(error)}`);
    if (code === 'insufficient_quota') assert.match(explain(error, german), /^Noch \d+ s$/, name);
  }
  assert.equal(raw.error.code, code);
  assert.equal(explain(raw), raw.error.message);
}
assert.equal(explain(new TypeError('fetch failed')), 'The answer failed.');
