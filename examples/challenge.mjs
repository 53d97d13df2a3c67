// Asks as a page's visitor does, without a token, until tokenfuse wants a
// challenge solved; solves it and goes on.
//
//   node examples/challenge.mjs [URL [FEATURE]]
//
// URL may also come from TOKENFUSE_URL. ask and buyPass work in a page too, if the
// client is made with dangerouslyAllowBrowser: true, which is no danger here: there
// is no key to lose. ALTCHA's widget can do what buyPass does.
import OpenAI from 'openai';
import { solveChallenge } from 'altcha-lib';
import { deriveKey } from 'altcha-lib/algorithms/pbkdf2';

const [url = process.env.TOKENFUSE_URL ?? 'http://127.0.0.1:8787', feature = 'docqa'] = process.argv.slice(2);
let client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'anonymous' }); // the client insists on some key

async function ask(question) {
  const request = { model: feature, messages: [{ role: 'user', content: question }], max_tokens: 20 };
  try {
    return await client.chat.completions.create(request);
  } catch (error) {
    // challenge_failed: the pass that was sent has expired, or the network changed.
    if (!['challenge_required', 'challenge_failed'].includes(error.code)) throw error;
    console.log(`${error.constructor.name}: ${error.code}: ${error.message}`);
    const pass = await buyPass(error.error.challenge_url);
    client = client.withOptions({ defaultHeaders: { 'X-Challenge-Pass': pass } });
    return client.chat.completions.create(request);
  }
}

// The challenge is a proof of work: some hundred milliseconds of this machine.
async function buyPass(challengeURL) {
  const start = Date.now();
  const challenge = await (await fetch(challengeURL)).json();
  const solution = await solveChallenge({ challenge, deriveKey });
  if (!solution) throw new Error('not solved within 90 seconds');
  const answer = await fetch(challengeURL, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ payload: btoa(JSON.stringify({ challenge, solution })) }),
  });
  const { pass, expires_at, error } = await answer.json();
  if (!pass) throw new Error(error.message);
  console.log(`solved in ${Date.now() - start} ms, the pass is good for ${Math.round(expires_at - Date.now() / 1000)} s`);
  return pass;
}

for (let call = 1; call <= 8; call++) {
  const { usage } = await ask('Why? '.repeat(390));
  console.log(`call ${call}: ${usage.total_tokens} tokens`);
}
