// Opens the page of docs/clients.md in a browser and asks a question:
//
//   node browse.mjs BROWSER URL QUESTION
//
// and prints what the page shows once there is less left, or a problem, as JSON.
import { chromium } from 'playwright-core';

const [executablePath, url, question] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
try {
  const page = await browser.newPage();
  page.on('pageerror', error => console.error(String(error)));
  await page.goto(url);
  const before = await (await page.waitForFunction(() => left.textContent)).jsonValue();
  await page.fill('#question', question);
  await page.click('button');
  await page.waitForFunction(b => left.textContent !== b || problem.textContent, before, { timeout: 40_000 });
  console.log(JSON.stringify(await page.evaluate(() => Object.fromEntries(
    [answer, problem, left].map(e => [e.id, e.textContent]).concat([['widget', !widget.hidden && widget.innerText]])))));
} finally {
  await browser.close();
}
