// Solves a challenge with ALTCHA's own library, as its widget does in a browser.
// Reads the challenge from standard input and prints the payload:
//
//   URL=http://127.0.0.1:8787
//   payload=$(curl -s $URL/v1/challenge | node examples/altcha-solve.mjs)
//
// which buys a pass:
//
//   curl -s $URL/v1/challenge -H 'Content-Type: application/json' -d "{\"payload\":\"$payload\"}"
//
// Send the pass with each call, as the header X-Challenge-Pass.
import { text } from 'node:stream/consumers';
import { solveChallenge } from 'altcha-lib';
import { deriveKey } from 'altcha-lib/algorithms/pbkdf2';

const challenge = JSON.parse(await text(process.stdin));
const solution = await solveChallenge({ challenge, deriveKey });
if (!solution) throw new Error('not solved within 90 seconds');
console.log(Buffer.from(JSON.stringify({ challenge, solution })).toString('base64'));
