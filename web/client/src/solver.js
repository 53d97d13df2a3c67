/*! With altcha-lib (MIT License, Copyright (c) 2023-2026 Daniel Regeci). */
// Solves ALTCHA's challenges: a module of its own, so that a page loads it only when it is
// challenged, and a worker where index.js starts it as one.
import { solveChallenge } from 'altcha-lib';
import { deriveKey } from 'altcha-lib/algorithms/web/pbkdf2';

/** @param {any} challenge @returns {Promise<string>} the payload */
export async function solve(challenge) {
  const solution = await solveChallenge({ challenge, deriveKey });
  if (!solution) throw new Error('The challenge was not solved in time.');
  return btoa(JSON.stringify({ challenge, solution }));
}

// By its name, since the program of somebody's own worker may import this, too.
if (/** @type {any} */ (globalThis).name === 'tokenfuse solver') {
  globalThis.onmessage = async ({ data }) => {
    postMessage(await solve(data).then(payload => ({ payload }), error => ({ error: String(error?.message ?? error) })));
  };
}
