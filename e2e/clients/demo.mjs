// Does on the page of dev what a visitor does:  node demo.mjs URL
import assert from 'node:assert/strict';
import { accessible, args, close, picture, until, visit } from './rig.mjs';

const [url] = args;
const text = (page, id) => page.textContent(`#${id}`);
const said = (page, words) => until(page, words => new RegExp(words).test(document.getElementById('news').textContent), words);
const left = async (page, limit) => Number((await page.locator(`.bar[data-limit=${limit}]`).locator('..').locator('.figure').textContent()).match(/[\d,.]+/)[0].replace(/\D/g, ''));
const steps = page => page.locator('#steps li').allTextContents();
const number = line => Number(line.match(/([\d,]+) Tokens/)[1].replace(',', ''));
const trouble = async (page, mark) => { await page.selectOption('#trouble', mark); await page.click('#send'); };

for (const theme of ['light', 'dark']) {
  for (const width of [390, 1440]) await visit({ url, width, theme }, page => accessible(page));
}

await visit({ url }, async page => {
  await until(page, () => document.querySelector('.bar'));
  await accessible(page, 'fresh');
  const whole = await left(page, 'tokens');

  // Ask, by the keyboard alone; see it stream, and the budget reserved and coming back.
  await page.focus('#question');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await until(page, () => document.querySelector('.bar[data-limit=tokens] .held')?.getBoundingClientRect().width > 4);
  await until(page, () => document.getElementById('answer').textContent.length > 4);
  const early = await text(page, 'answer');
  await said(page, 'Answered');
  const late = await text(page, 'answer');
  assert.ok(late.startsWith(early) && late.length > early.length, `${early} / ${late}: not streamed`);
  const [reserved, used, back] = (await steps(page)).map(number);
  assert.equal(reserved, used + back, 'what was reserved is used or comes back');
  assert.equal(await left(page, 'tokens'), whole - used);

  // The provider fails: nothing is taken but the request.
  for (const mark of ['[[fail:500]]', '[[fail:empty]]']) {
    const before = await left(page, 'tokens');
    await trouble(page, mark);
    await said(page, 'Nothing was taken');
    await until(page, () => !document.getElementById('send').disabled);
    assert.ok(await left(page, 'tokens') >= before, mark);
    assert.ok((await steps(page)).includes('Nothing was taken'), mark);
  }
  await trouble(page, '[[fail:cut]]');
  await until(page, () => document.querySelector('.answer.failed'));
  await until(page, () => !document.getElementById('send').disabled);
  await accessible(page, 'failed');
  await page.selectOption('#trouble', '');

  // Go on until there is a challenge, which the browser solves by itself.
  await page.click('#until');
  await said(page, 'Challenge solved');
  await until(page, () => /pass/.test(document.getElementById('who').textContent) && !document.getElementById('send').disabled);

  // Sign in: another budget, more features. Run out, and read when to come back.
  await page.click('#sign');
  await until(page, () => /demo/.test(document.getElementById('who').textContent) && document.getElementById('feature').length > 1);
  assert.ok(await left(page, 'tokens') > whole);
  await page.click('#send');
  await said(page, 'Answered');
  await page.click('#until');
  await said(page, 'You can ask again in .* at \\d+:\\d\\d');
  await accessible(page, 'refused');
  await picture(page, 'demo-refused');
  await page.click('#again');
  await said(page, 'full again');
  assert.equal(await left(page, 'requests'), 60);

  // The attack is in nobody's way.
  await page.click('#strike');
  await until(page, () => /[1-9]/.test(document.getElementById('limiter').textContent));
  await page.click('#send');
  await said(page, 'Answered');
  await until(page, () => /in its way/.test(document.getElementById('wave').textContent), undefined, 60_000);
  const dollars = async id => Number((await text(page, id)).replace(/[^\d.]/g, ''));
  const [without, spent] = [await dollars('limiter'), await dollars('ours')];
  assert.ok(spent > 0 && spent < 0.1 && without > 20 * spent, `${without} and ${spent}`);
  await accessible(page, 'attacked');
  await picture(page, 'demo-light', { fullPage: true });
  await page.emulateMedia({ colorScheme: 'dark' });
  await accessible(page, 'dark');
  await picture(page, 'demo-dark', { fullPage: true });
  await page.click('#sign');
  await until(page, () => /visitor/.test(document.getElementById('who').textContent));
});

// On a phone, in German, dark.
await visit({ url, width: 390, height: 844, theme: 'dark', locale: 'de-DE' }, async page => {
  await until(page, () => document.querySelector('.bar'));
  assert.equal(await page.getAttribute('html', 'lang'), 'de');
  await page.click('#send');
  await said(page, 'Beantwortet');
  await accessible(page, 'phone');
  await picture(page, 'demo-phone-dark', { fullPage: true });
  await page.click('#language');
  await until(page, () => document.documentElement.lang === 'en' && document.getElementById('send').textContent === 'Ask');
});
await close();
