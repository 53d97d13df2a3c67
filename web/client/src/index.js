/**
 * What is left of a limit, by its name, in the limit's own unit.
 * @typedef {Record<string, number>} Budget
 *
 * What tokenfuse says of a refusal.
 * @typedef {{code: string, message: string, [figure: string]: any}} Refusal
 *
 * Sentences in another language: by code, from the refusal's figures.
 * @typedef {Record<string, (refusal: Refusal) => string>} Language
 */

// What GET /v1/challenge gives.
/** @typedef {Record<string, any>} Challenge */

// SDKs that go by the status alone, by what they call themselves. OpenAI's own obeys x-should-retry.
const byStatus = /\bai-sdk|langchain/i;

/** @param {any} error @returns {Refusal | undefined} */
function refusalIn(error) {
  for (const e of [error?.lastError, error, error?.cause]) {
    let body; // the AI SDK's data has not all figures
    try { body = JSON.parse(e.responseBody); } catch { /* another SDK's */ }
    for (const r of [body?.error, e?.data?.error, e?.data, e?.error?.error, e?.error, e]) {
      if (typeof r?.code === 'string' && typeof r.message === 'string' && typeof r.type === 'string') return r;
    }
  }
}

/**
 * The sentence for people: of an error that an SDK threw, or of the body of a refusal.
 * @param {any} error
 * @param {Language} [language] English where it has no sentence for the code
 * @returns {string}
 */
export function explain(error, language = {}) {
  const refusal = refusalIn(error);
  if (!refusal) return 'The answer failed.';
  return Object.hasOwn(language, refusal.code) ? language[refusal.code](refusal) : refusal.message;
}

/** Solves ALTCHA's proof of work: in a worker, so that the page stays as quick as it was. @param {Challenge} challenge @returns {Promise<string>} */
async function solveAltcha(challenge) {
  const here = () => import('./solver.js').then(solver => solver.solve(challenge));
  /** @type {Worker} */
  let worker;
  try {
    worker = new Worker(new URL('./solver.js', import.meta.url), { type: 'module', name: 'tokenfuse solver' });
  } catch { // Node, or a page whose policy has no workers
    return here();
  }
  const solved = await new Promise(resolve => {
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = event => { event.preventDefault(); resolve(undefined); }; // it did not start
    worker.postMessage(challenge);
  });
  worker.terminate();
  if (solved?.error) throw new Error(solved.error);
  return solved?.payload ?? here();
}

/**
 * @param {object} options
 * @param {string} options.baseURL that of the SDK, with /v1
 * @param {string | (() => string | Promise<string>)} [options.token] the user's; without it, calls are anonymous
 * @param {(challenge: Challenge) => Promise<string | undefined>} [options.solve] gives the payload of a challenge, of a widget
 *   for instance; undefined: the refusal stands. Without it, ALTCHA's are solved unseen, and others' refusals stand.
 * @param {(solved: Promise<boolean>) => void} [options.onChallenge] is told when a challenge is being solved, and whether that gave a pass
 */
export function createFuse({ baseURL, token, solve, onChallenge }) {
  const base = baseURL.replace(/\/+$/, ''), name = `tokenfuse ${base}`;
  /** @type {Budget} */
  let budget = {};
  /** @type {Set<(budget: Budget) => void>} */
  const listeners = new Set();
  /** @type {string | undefined} */
  let kept;
  /** @type {Promise<unknown>} */
  let last = Promise.resolve();

  /** @param {[string, number][]} limits */
  function tell(limits) {
    if (!limits.length) return;
    budget = Object.fromEntries(limits);
    for (const listener of listeners) listener(budget);
  }
  /** @param {any} limits */
  const tellLimits = limits => { if (Array.isArray(limits)) tell(limits.map(l => [l.name, l.remaining])); };

  // The pass, of whichever tab; a page may be denied its storage. When it has expired,
  // tokenfuse says so: the clock of a visitor may be wrong.
  function pass() {
    try { kept = localStorage.getItem(name) ?? kept; } catch { /* the one of this page */ }
    return kept;
  }

  /** One at a time, over all tabs where there are locks. @template T @param {() => Promise<T>} work @returns {Promise<T>} */
  function alone(work) {
    if (globalThis.navigator?.locks) return /** @type {any} */ (navigator.locks.request(name, work));
    const mine = last.then(work);
    last = mine.catch(() => {});
    return mine;
  }

  /**
   * Gives what refused, or nothing: there is a good pass.
   * @param {string} url @param {Response} refusal @param {string | undefined} refused the pass that was not good @param {AbortSignal} signal
   */
  async function renew(url, refusal, refused, signal) {
    const other = pass();
    if (other && other !== refused) return; // somebody solved it while we waited
    const refusedAgain = buy(url, refusal, signal);
    onChallenge?.(refusedAgain.then(again => !again, () => false));
    return refusedAgain;
  }

  /** Solves a challenge for a pass. @param {string} url @param {Response} refusal @param {AbortSignal} signal @returns {Promise<Response | undefined>} what refused */
  async function buy(url, refusal, signal) {
    const given = await fetch(url, { signal });
    if (!given.ok) return given;
    const challenge = await given.json();
    if (!solve && !challenge.parameters) return refusal; // a widget's, which the page must show
    const payload = await (solve ?? solveAltcha)(challenge);
    if (payload === undefined) return refusal;
    signal.throwIfAborted();
    const answer = await fetch(url, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ payload }), signal });
    if (!answer.ok) return answer;
    const bought = kept = /** @type {string} */ ((await answer.json()).pass);
    try { localStorage.setItem(name, bought); } catch { /* this page has it */ }
  }

  async function authorization() {
    const t = typeof token === 'function' ? await token() : token;
    return t ? `Bearer ${t}` : undefined;
  }

  /** @param {Request} request */
  async function send(request) {
    const auth = await authorization(), sent = auth ? undefined : pass();
    request.headers.delete('Authorization'); // an SDK's key is only a filler
    if (auth) request.headers.set('Authorization', auth);
    if (sent) request.headers.set('X-Challenge-Pass', sent);
    return { response: await fetch(request), sent };
  }

  /** Reads what a stream tells of the limits as it goes by. @param {Response} response */
  function watched(response) {
    const decoder = new TextDecoder();
    let rest = '';
    const body = response.body?.pipeThrough(new TransformStream({
      transform(bytes, out) {
        out.enqueue(bytes);
        const lines = (rest + decoder.decode(bytes, { stream: true })).split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) {
          if (!line.startsWith('data: ') || !line.includes('"limits"')) continue;
          try {
            const event = JSON.parse(line.slice(6));
            tellLimits(event.limits ?? event.response?.limits);
          } catch { /* [DONE] */ }
        }
      },
    }));
    return new Response(body, response);
  }

  /** @type {typeof globalThis.fetch} */
  async function fuseFetch(input, init) {
    const request = new Request(input, init);
    if (!request.url.startsWith(`${base}/`)) return fetch(request); // neither token nor pass is for others
    const again = request.clone();
    let { response, sent } = await send(request);
    if (response.status === 403) {
      const { error } = await response.clone().json().catch(() => ({}));
      if (['challenge_required', 'challenge_failed'].includes(error?.code) && error.challenge_url) {
        const refusal = response;
        response = await alone(() => renew(error.challenge_url, refusal, sent, request.signal)) ?? (await send(again)).response;
      }
    }
    const limits = [...(response.headers.get('RateLimit') ?? '').matchAll(/"([^"]+)";r=(\d+)/g)];
    tell(limits.map(([, limit, left]) => [limit, Number(left)]));
    if (response.headers.get('Content-Type')?.startsWith('text/event-stream')) return watched(response);
    const { status, headers } = response;
    const final = headers.get('x-should-retry') === 'false' && (status === 408 || status === 409 || status === 429 || status >= 500);
    // Not of the request: a browser may drop the name there.
    const sdk = new Headers(init?.headers).get('User-Agent') ?? '';
    return final && byStatus.test(sdk) ? new Response(response.body, { status: 400, headers }) : response;
  }

  return {
    baseURL: base,
    fetch: fuseFetch,
    explain,
    /** What is left, as far as it was told: empty before the first answer. */
    get budget() { return budget; },
    /** Calls listener with each new budget. @param {(budget: Budget) => void} listener @returns {() => void} ends that */
    subscribe(listener) {
      listeners.add(listener);
      return () => { listeners.delete(listener); };
    },
    /** Asks for the budget without a call. @returns {Promise<Budget>} */
    async refresh() {
      const { response } = await send(new Request(`${base}/limits`));
      const body = await response.json();
      if (!response.ok) throw body;
      tellLimits(body.limits);
      return budget;
    },
  };
}
