/**
 * The sentence for people: of an error that an SDK threw, or of the body of a refusal.
 * @param {any} error
 * @param {Language} [language] English where it has no sentence for the code
 * @returns {string}
 */
export function explain(error: any, language?: Language): string;
/**
 * @param {object} options
 * @param {string} options.baseURL that of the SDK, with /v1
 * @param {string | (() => string | Promise<string>)} [options.token] the user's; without it, calls are anonymous
 * @param {(challenge: Challenge) => Promise<string | undefined>} [options.solve] gives the payload of a challenge, of a widget
 *   for instance; undefined: the refusal stands. Without it, ALTCHA's are solved unseen, and others' refusals stand.
 * @param {(solved: Promise<boolean>) => void} [options.onChallenge] is told when a challenge is being solved, and whether that gave a pass
 */
export function createFuse({ baseURL, token, solve, onChallenge }: {
    baseURL: string;
    token?: string | (() => string | Promise<string>) | undefined;
    solve?: ((challenge: Challenge) => Promise<string | undefined>) | undefined;
    onChallenge?: ((solved: Promise<boolean>) => void) | undefined;
}): {
    baseURL: string;
    fetch: (input: RequestInfo | URL, init?: RequestInit) => Promise<Response>;
    explain: typeof explain;
    /** What is left, as far as it was told: empty before the first answer. */
    readonly budget: Budget;
    /** Calls listener with each new budget. @param {(budget: Budget) => void} listener @returns {() => void} ends that */
    subscribe(listener: (budget: Budget) => void): () => void;
    /** Asks for the budget without a call. @returns {Promise<Budget>} */
    refresh(): Promise<Budget>;
};
/**
 * What tokenfuse says of a refusal.
 */
export type Budget = Record<string, number>;
/**
 * Sentences in another language: by code, from the refusal's figures.
 */
export type Refusal = {
    code: string;
    message: string;
    [figure: string]: any;
};
/**
 * What is left of a limit, by its name, in the limit's own unit.
 */
export type Language = Record<string, (refusal: Refusal) => string>;
export type Challenge = Record<string, any>;
