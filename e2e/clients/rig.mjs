// What programs that visit a page in a browser have in common. A visit fails on anything
// that the browser complains of, and on a request to a host that it was not meant for.
//
//   await visit({ url, width: 390, theme: 'dark', locale: 'de-DE' }, async page => { … });
import { readFileSync, mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const { TOKENFUSE_BROWSER: executablePath, TOKENFUSE_PICTURES: pictures } = process.env;
export const args = process.argv.slice(2);

let browser;
/** The browser of this program; end it with close. */
async function started() {
  return browser ??= await chromium.launch({ executablePath, args: ['--no-sandbox'] });
}
export const close = async () => { await browser?.close(); browser = undefined; };

/** Gives work a page of a visitor of its own. The browser reports each answer of 400 or more: that is no fault. */
export async function visit({ url, width = 1440, height = 900, theme = 'light', locale = 'en-US' }, work) {
  const own = await (await started()).newContext({ viewport: { width, height }, colorScheme: theme, locale, reducedMotion: 'reduce' });
  const page = await own.newPage();
  const faults = [];
  page.on('pageerror', error => faults.push(`page: ${error.stack ?? error}`));
  page.on('console', message => {
    const text = message.text();
    if (!['error', 'warning'].includes(message.type())) return;
    if (text.startsWith('Failed to load resource: the server responded with a status of')) return; // a refusal
    faults.push(`console: ${text}`);
  });
  page.on('request', request => {
    const { protocol, host } = new URL(request.url());
    if (!['data:', 'blob:'].includes(protocol) && host !== new URL(url).host) faults.push(`request to ${request.url()}`);
  });
  try {
    await page.goto(url);
    await work(page);
    if (faults.length) throw new Error(`${url}:\n${faults.join('\n')}`);
  } catch (error) {
    if (faults.length) console.error(faults.join('\n'));
    throw error;
  } finally {
    await own.close();
  }
}

/** Whatever axe finds on the page as it stands. */
export async function accessible(page, what = page.url()) {
  await page.evaluate(readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8'));
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  if (violations.length) {
    throw new Error(`${what}: ${violations.map(v => `${v.id}: ${v.help}: ${v.nodes.map(n => `${n.html} ${n.failureSummary}`).join('; ')}`).join('\n')}`);
  }
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (wider > 0) throw new Error(`${what}: scrolls sideways, by ${wider} px`);
}

/** Takes a picture into the folder that TOKENFUSE_PICTURES names, if it names one. */
export async function picture(page, name, options = {}) {
  if (!pictures) return;
  mkdirSync(pictures, { recursive: true });
  await page.screenshot({ path: join(pictures, `${name}.png`), ...options });
}

/** Waits for what must become true of the page. */
export const until = (page, what, arg, timeout = 30_000) => page.waitForFunction(what, arg, { timeout });
