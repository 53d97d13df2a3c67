// The page to try: it asks as any page would, by the client of others' pages, and shows what
// tokenfuse tells of the budget.
import { createFuse, explain } from '/client/index.js';
import { chart } from '/shared/chart.js';
import { lines } from '/shared/lines.js';
import { translate } from '/shared/words.js';
import { de, en } from '/demo/words.js';

const at = id => document.getElementById(id);
const words = translate({ en, de });
const { say } = words;

let token; // of the user who signed in
let limits = []; // as GET /v1/limits gives them
let identity;
let open; // limits before the call that is under way
let busy = false;
let solved = false; // a challenge, just now

const fuse = createFuse({
  baseURL: `${location.origin}/v1`,
  token: () => token ?? '',
  async onChallenge(solving) {
    news(say('challenge'));
    solved = await solving;
    if (solved) news(say('solved'));
  },
});

const news = (text, bad = false) => { at('news').textContent = text; at('news').classList.toggle('bad', bad); };
const dollars = n => words.number(n, { style: 'currency', currency: 'USD', minimumFractionDigits: 2, maximumFractionDigits: n < 0.1 ? 3 : 2 });
const left = name => limits.find(l => l.name === name)?.remaining;

async function json(path, options) {
  const response = await fuse.fetch(`${fuse.baseURL}${path}`, options);
  const body = await response.json();
  if (!response.ok) throw body;
  return body;
}

/** Reads the limits of whoever asks now; the features, too, which differ by who asks. */
async function look() {
  ({ identity, limits } = await json('/limits'));
  showBudget();
}

async function features() {
  const { data } = await json('/models'), before = at('feature').value;
  const talking = data.filter(model => model.max_messages).map(model => model.id);
  at('feature').replaceChildren(...talking.map(id => new Option(id, id, false, id === before)));
  at('send').disabled = at('until').disabled = !talking.length;
  if (!talking.length) news(say('noFeature'));
}

// A bar for each unit: what others of a network share is not shown.
function showBudget() {
  const bars = ['tokens', 'requests'].map(name => limits.find(l => l.name === name)).filter(Boolean).map(limit => {
    const held = open ? Math.max(0, open[limit.name] - limit.remaining) : 0;
    const bar = document.createElement('div'), head = document.createElement('div');
    head.className = 'bar-head';
    head.append(Object.assign(document.createElement('span'), { textContent: say(limit.name) }),
      Object.assign(document.createElement('span'), { className: 'figure', textContent: say('leftOf', words.number(limit.remaining), words.number(limit.capacity)) }));
    const strip = Object.assign(document.createElement('div'), { className: 'bar' });
    strip.dataset.limit = limit.name;
    for (const [kind, amount] of [['used', limit.capacity - limit.remaining - held], ['held', held]]) {
      const part = Object.assign(document.createElement('i'), { className: kind });
      part.style.setProperty('--share', `${Math.max(0, amount) / limit.capacity * 100}%`);
      strip.append(part);
    }
    bar.append(head, strip);
    return bar;
  });
  at('bars').replaceChildren(...bars);
  at('who').textContent = token ? say('user', identity.id) : say(identity?.id.startsWith('pass#') ? 'passed' : 'visitor');
  at('sign').textContent = say(token ? 'signOut' : 'signIn');
  at('until').textContent = say(token ? 'untilRefused' : 'untilChallenged');
}

function step(word, tokens) {
  const line = document.createElement('li');
  line.append(Object.assign(document.createElement('span'), { textContent: say(word) }));
  if (tokens !== undefined) line.append(Object.assign(document.createElement('b'), { textContent: `${words.number(tokens)} ${say('tokens')}` }));
  at('steps').append(line);
}

/** The events of a stream, as objects. @param {Response} response */
async function* events(response) {
  for await (const line of lines(response.body)) if (line.startsWith('data: {')) yield JSON.parse(line.slice(6));
}

const remaining = headers => new Map([...(headers.get('RateLimit') ?? '').matchAll(/"([^"]+)";r=(\d+)/g)].map(([, name, r]) => [name, Number(r)]));

/** Asks, and shows how the budget is reserved and comes back. It throws what refused. */
async function ask(question) {
  const answer = at('answer');
  answer.hidden = true;
  answer.textContent = '';
  answer.classList.remove('failed');
  at('steps').replaceChildren();
  await look();
  const before = left('tokens');
  news(say('asking'));
  const response = await fuse.fetch(`${fuse.baseURL}/chat/completions`, {
    method: 'POST', headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ model: at('feature').value, stream: true, messages: [{ role: 'user', content: question }] }),
  });
  try {
    if (!response.ok) throw await response.json();
    // A pass that was just bought has limits of its own.
    const first = remaining(response.headers);
    if (!first.has('network_tokens') && identity.id.startsWith('net#')) limits = (await json('/limits')).limits;
    const whole = limits.find(l => l.name === 'tokens')?.capacity;
    const start = identity.id.startsWith('net#') && !first.has('network_tokens') ? whole : before;
    open = { tokens: start, requests: left('requests') };
    for (const limit of limits) limit.remaining = first.get(limit.name) ?? limit.remaining;
    const reserved = start - first.get('tokens');
    showBudget();
    step('reserved', reserved);
    answer.hidden = false;
    let after;
    for await (const event of events(response)) {
      if (event.error) throw event;
      answer.textContent += event.choices?.[0]?.delta?.content ?? '';
      after = event.limits ?? after;
    }
    if (after) {
      const now = after.find(l => l.name === 'tokens').remaining;
      step('usedNow', Math.max(0, start - now));
      step('back', Math.max(0, Math.min(reserved, now - first.get('tokens'))));
    }
    news(say('done'));
  } catch (error) {
    if (open && error?.error) answer.classList.add('failed');
    throw error;
  } finally {
    open = undefined;
    await look();
    if (!response.ok && response.status >= 500 && left('tokens') >= before) step('nothing');
  }
}

/** Shows why it was refused, and till when, with the time that is left. */
let counting;
function refused(error) {
  clearInterval(counting);
  const seconds = error?.error?.retry_after_seconds, end = seconds && Date.now() / 1000 + seconds;
  const sentence = error?.error ? explain(error) : say('failed');
  news(end ? `${sentence} ${say('at', words.date(end, { timeStyle: 'medium' }))}` : sentence, true);
}

async function working(work) {
  if (busy) return;
  busy = true;
  clearInterval(counting);
  at('send').disabled = at('until').disabled = true;
  try {
    await work();
  } catch (error) {
    refused(error);
  } finally {
    busy = false;
    at('send').disabled = at('until').disabled = false;
  }
}

at('form').addEventListener('submit', event => {
  event.preventDefault();
  working(() => ask(`${at('question').value} ${at('trouble').value}`.trim()));
});
// Short calls, three at a time, as of somebody in a hurry: until a visitor is challenged, or
// a user refused. A visitor would have to solve one challenge after the other to get so far.
at('until').addEventListener('click', () => working(async () => {
  at('steps').replaceChildren();
  at('answer').hidden = true;
  const body = JSON.stringify({ model: at('feature').value, max_tokens: 1, messages: [{ role: 'user', content: at('question').value }] });
  const hurry = async () => {
    for (solved = false; !solved;) {
      await json('/chat/completions', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body });
      await look();
    }
  };
  try {
    await Promise.all([hurry(), hurry(), hurry()]);
  } finally {
    await look();
  }
}));

at('sign').addEventListener('click', () => working(async () => {
  if (token) token = undefined;
  else {
    const response = await fetch('/dev/token', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ sub: 'demo', email: 'demo@example.com' }) });
    ({ token } = await response.json());
  }
  at('steps').replaceChildren();
  news('');
  await look();
  await features();
}));

at('again').addEventListener('click', () => working(async () => {
  const whom = token ? { user: identity.id } : { identity: identity.id };
  const response = await fetch('/dev/clear', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ ...whom, type: 'all' }) });
  if (!response.ok && response.status !== 404) throw await response.json(); // 404: nothing was used yet
  await look();
  at('steps').replaceChildren();
  news(say('cleared'));
}));

// The attack.
const seconds = 20, drawing = chart(at('chart'), { x: s => say('seconds', words.number(Math.round(s))), y: dollars });
let seen = { limiter: [], ours: [] }, last, stop;
function draw() {
  const now = last?.seconds ?? 0;
  at('limiter').textContent = dollars(Number(last?.limiter_usd ?? 0));
  at('ours').textContent = dollars(Number(last?.spent_usd ?? 0));
  drawing.update({
    title: say('chart', dollars(Number(last?.limiter_usd ?? 0)), dollars(Number(last?.spent_usd ?? 0)), Math.round(now)),
    range: [0, Math.max(seconds, now)],
    least: 1,
    series: [{ style: 'bad', area: true, points: seen.limiter }, { style: 'good', points: seen.ours }],
  });
  if (!last) return;
  const refusals = Object.values(last.refused).reduce((sum, n) => sum + n, 0);
  at('wave').textContent = [say('wave', ...[last.requests, last.answered, refusals].map(n => words.number(n))), last.done ? say('waveEnd') : ''].join(' ').trim();
}
at('strike').addEventListener('click', async () => {
  if (stop) return stop.abort();
  stop = new AbortController();
  seen = { limiter: [[0, 0]], ours: [[0, 0]] };
  at('strike').textContent = say('stop');
  try {
    const response = await fetch('/dev/attack', { method: 'POST', signal: stop.signal });
    if (!response.ok) throw new Error(response.status === 409 ? say('waveBusy') : await response.text());
    for await (const line of lines(response.body)) {
      last = JSON.parse(line);
      seen.limiter.push([last.seconds, Number(last.limiter_usd)]);
      seen.ours.push([last.seconds, Number(last.spent_usd)]);
      draw();
    }
  } catch (error) {
    if (error.name !== 'AbortError') at('wave').textContent = error.message;
  } finally {
    stop = undefined;
    at('strike').textContent = say('strike');
  }
});

at('language').addEventListener('click', () => words.choose(words.language === 'en' ? 'de' : 'en'));
function reword() {
  at('language').textContent = say('other');
  at('language').lang = words.language === 'en' ? 'de' : 'en';
  if (['', en.example, de.example].includes(at('question').value)) at('question').value = say('example');
  showBudget();
  draw();
}
words.onChange(reword);
reword();
working(async () => { await look(); await features(); });
