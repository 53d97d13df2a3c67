/** @param {any} challenge @returns {Promise<string>} the payload */
export function solve(challenge: any): Promise<string>;
