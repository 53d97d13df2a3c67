// The languages of a page: what it says stands in one object for each language, by the same
// keys. A value is a text, or a function that makes one of figures.

const kept = 'tokenfuse language';

/** The language of a page: the one that was chosen here before, else the browser's first that we speak. */
function chosen(languages) {
  let before;
  try { before = localStorage.getItem(kept); } catch { /* this visit has no storage */ }
  return [before, ...navigator.languages.map(l => l.slice(0, 2))].find(l => Object.hasOwn(languages, l ?? '')) ?? 'en';
}

/**
 * Gives the page's words. An element with data-t="KEY" shows that text, and data-t-aria-label
 * is what those hear who do not see it.
 * @param {Record<string, Record<string, string | ((...figures: any[]) => string)>>} languages
 */
export function translate(languages) {
  let language = chosen(languages);
  const changed = new Set();
  const say = (key, ...figures) => {
    const word = languages[language][key] ?? languages.en[key];
    if (word === undefined) throw new Error(`no words for ${key}`);
    return typeof word === 'function' ? word(...figures) : word;
  };
  function show() {
    document.documentElement.lang = language;
    for (const element of document.querySelectorAll('[data-t]')) element.textContent = say(element.dataset.t);
    for (const element of document.querySelectorAll('[data-t-aria-label]')) element.setAttribute('aria-label', say(element.dataset.tAriaLabel));
  }
  show();
  return {
    say,
    get language() { return language; },
    /** Calls again whenever another language is chosen. */
    onChange(again) { changed.add(again); },
    choose(other) {
      language = other;
      try { localStorage.setItem(kept, other); } catch { /* for this visit */ }
      show();
      for (const again of changed) again();
    },
    /** A number as people of the language write it. */
    number: (n, options) => new Intl.NumberFormat(language, options).format(n),
    date: (seconds, options) => new Intl.DateTimeFormat(language, options).format(new Date(seconds * 1000)),
  };
}
