// Writes golden.jsonl, the counts that OpenAI's own tokenizer gives, by its
// build for JavaScript:
//
//   cd $(mktemp -d) && npm install tiktoken@1.0.22
//   cp .../internal/tokens/testdata/make.mjs . && node make.mjs > golden.jsonl
//
// Each line is one case, with, for each encoding, the number of tokens and a
// hash of their ids (FNV-1a of each as four bytes, little endian):
//   {"text", "repeat"}             text, repeated if repeat says so
//   {"alphabet", "seed", "texts"}  so many random texts of the alphabet's items
//   {"from", "to"}                 one probe of each code point of that range
// The last two are expanded in the same way by golden_test.go; their tokens are
// those of all their texts, one after the other.
import { get_encoding } from "tiktoken";

const encodings = ["o200k_base", "cl100k_base"].map((name) => [name, get_encoding(name)]);

function emit(description, texts) {
  const line = { ...description };
  for (const [name, encoding] of encodings) {
    let count = 0;
    let hash = 0x811c9dc5;
    for (const text of texts) {
      for (const id of encoding.encode_ordinary(text)) {
        count++;
        for (let shift = 0; shift < 32; shift += 8) hash = Math.imul(hash ^ ((id >>> shift) & 0xff), 0x01000193) >>> 0;
      }
    }
    line[name] = [count, hash];
  }
  console.log(JSON.stringify(line));
}

const one = (text) => emit({ text }, [text]);
const repeated = (text, repeat) => emit({ text, repeat }, [text.repeat(repeat)]);

// xorshift32 from the seed; a text has 1 to 24 items.
function random(alphabet, seed, texts) {
  let x = seed;
  const next = (n) => {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    return (x >>> 0) % n;
  };
  const all = [];
  for (let i = 0; i < texts; i++) {
    let text = "";
    for (let n = 1 + next(24); n > 0; n--) text += alphabet[next(alphabet.length)];
    all.push(text);
  }
  emit({ alphabet, seed, texts }, all);
}

// The probe shows whether the code point is a letter, a mark, a number, a space
// or none of these: each splits it otherwise.
function probe(from, to) {
  const all = [];
  for (let c = from; c < to; c++) {
    if (c >= 0xd800 && c < 0xe000) continue;
    const s = String.fromCodePoint(c);
    all.push(`x${s}'s!!${s}\n \n${s}1234 ${s}Ab`);
  }
  emit({ from, to }, all);
}

// Plain texts, code and markup, and every prefix of some.
const prose = [
  "When the provider fails, a call that gave the caller nothing takes nothing from their quota.",
  "The quick brown fox doesn't jump over 1,234 lazy dogs; it's trying, they've seen, I'd say we'll go. YOU'RE, THEY'VE, I'LL, HE'D, I'M, CAN'T, IT'S",
  "人工智能服务的费用可能在几分钟之内迅速上升,因此每一次调用之前都必须先预留最坏情况下的费用。",
  "料金は数分で急上昇することがあります。だから呼び出しの前に最悪の場合の費用を確保します。カタカナもひらがなも。",
  "요금은 몇 분 안에 급격히 오를 수 있으므로 호출 전에 최악의 비용을 예약합니다.",
  "Стоимость может вырасти за несколько минут, поэтому до вызова резервируется худший случай.",
  "قد ترتفع التكلفة في دقائق، لذلك نحجز أسوأ الحالات قبل كل استدعاء. ١٢٣٤٥٦",
  "העלות עלולה לעלות בתוך דקות, ולכן שומרים מראש את המקרה הגרוע ביותר.",
  "लागत कुछ ही मिनटों में बढ़ सकती है, इसलिए पहले से सबसे बुरी स्थिति आरक्षित करें। १२३४५६",
  "ค่าใช้จ่ายอาจเพิ่มขึ้นภายในไม่กี่นาที ดังนั้นจึงต้องจองกรณีที่แย่ที่สุดไว้ก่อน",
  "Chi phí có thể tăng vọt trong vài phút, vì vậy phải giữ trước trường hợp xấu nhất.",
  "Fußgängerübergänge, Straßenbahnhaltestelle, naïve café, Ærøskøbing, İstanbul, ŽLUŤOUČKÝ kůň, Ǆ ǅ ǆ",
  'func main() {\n\tfor i := 0; i < 10; i++ {\n\t\tfmt.Printf("%d\\n", i)\n\t}\n}\n',
  'SELECT u.id, COUNT(*) FROM users u LEFT JOIN calls c ON c.user_id = u.id WHERE c.at >= \'2026-11-30T12:00:00Z\' GROUP BY 1;\r\n-- done\r\n',
  '{"model":"docqa","messages":[{"role":"user","content":"hi"}],"max_tokens":400,"temperature":0.7}',
  "https://user:pw@example.com:8443/a/b//c/../d?x=1&y=%20z#frag http://[2001:db8::1]/ ftp://x/ mailto:a.b+c@example.org",
  "# Title\n\n* item one\n* item two\n\n```js\nconst camelCase = HTTPServerURL ?? snake_case;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
  "<!DOCTYPE html>\n<html>\n  <body class=\"x\">\n    <p>Hello&nbsp;world</p>\n  </body>\n</html>\n",
  "<|endoftext|><|im_start|>system<|im_sep|>You are<|im_end|><|endofprompt|><|fim_prefix|>",
  "base64: TWFueSBoYW5kcyBtYWtlIGxpZ2h0IHdvcmsu 0x9e3779b97f4a7c15 550e8400-e29b-41d4-a716-446655440000 v1.2.3-rc.4+build.5",
  "👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ❤️‍🔥 1️⃣ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ☺︎ ☺️",
  "Z̷̡̛͔a̸̢͝l̶͙͠g̴̨̛o̵͍͌ e\u0301 \u0301 \u0301a !\u0301\n a\u20dd",
  "\u0000\u0001\u001f\u007f\u0080\u0085\u00a0\u00ad\u200b\u200d\u2028\u2029\u202e\u3000\ufeff\ufffd\ufffe\uffff\u{1fffe}\u{10ffff}",
  "\ufdfa\ufdfb \ufb01 ½ ⅷ ⑳ ㋿ ㎯ ﬀ Å Å ǰ ΐ",
];
for (const text of prose) one(text);
for (const text of [prose[1], prose[12], prose[15], prose[20], prose[21]]) {
  const characters = [...text];
  for (let n = 0; n < characters.length; n++) one(characters.slice(0, n).join(""));
}
for (const role of ["system", "developer", "user", "assistant"]) one(role);

// Contractions in every case, in every surrounding.
for (const c of ["'s", "'S", "'ſ", "'t", "'T", "'re", "'rE", "'Re", "'RE", "'ve", "'VE", "'vE", "'m", "'M", "'ll", "'lL", "'LL", "'d", "'D", "'l", "'r", "'v", "'", "’s", "'K", "'\u212a", "'st", "'rſ", "'\u0131"]) {
  for (const before of ["", "x", "X", "xY", "中", "1", " ", "!", "\n", "''"]) {
    for (const after of ["", "x", "X", " ", "'s", "1"]) one(before + c + after);
  }
}

// Runs of white space and of symbols between all kinds of neighbours.
const runs = ["", " ", "  ", "   ", "\t", " \t", "\n", " \n", "\n ", "\n\n", "\r\n", " \r\n ", "\n \n", "\n  \n  ", "\u00a0", " \u00a0", "\u3000\u3000", "\u2028 ", "\v\f", "/", "/\n/", "!\n", "!\r\n/ ", " !", "  !\n\n", "_", "\u0301", " \u0301", "\u0301\u0301", "!\u0301"];
for (const run of runs) for (const before of ["", "a", "A", "1", "!", "中"]) for (const after of ["", "a", "AB", "1", "!", "'s", "ʰ", "\u0301"]) one(before + run + after);

// Mixed case and letters of no case.
for (const a of ["a", "A", "ǅ", "ʰ", "中", "\u0301", "1"]) for (const b of ["a", "A", "ǅ", "ʰ", "中", "\u0301"]) for (const c of ["a", "A", "中", "\u0301", "'s"]) one(" " + a + b + c + "AB" + c + "ab");

for (let n = 1; n <= 12; n++) for (const digit of ["1", "٣", "Ⅷ", "½"]) one("n" + digit.repeat(n) + " ");

// The texts that stall or cheat other counters.
for (const unit of ["a", "A", " ", "\n", "\r\n", "\t", "\u007f", "\u0000", "!", "/", "=", "-", "_", "'", "'s", "0", "1", "ab", "aA", "Aa", "the", " the", " a", "a ", " \n", "\n ", "  \n!", "中", "人工", "ก", "한", "é", "e\u0301", "\u0301", "\u0301A", "A\u0301", "ʰA", "👩‍👩‍👧‍👦", "🇩🇪", "\ufdfa", "\ufffd", "\u{10ffff}", "\u200b", "\u00a0", "ſ", "<|endoftext|>", "https://", "0123456789abcdef", "ACGT", "\\n", "\\u0000"]) {
  for (const n of [2, 3, 5, 7, 16, 63, 64, 65, 127, 128, 129, 1000]) repeated(unit, n);
}
for (const unit of ["\u007f", "中", "\u0301", "\n ", "aA"]) repeated(unit, 10000);
for (const unit of ["a", " "]) repeated(unit, 100000);

const alphabets = [
  ["a", "b", "c", "d", "e", "i", "l", "n", "o", "r", "s", "t", "u", " ", " "],
  ["a", "A", "s", "S", "ſ", "'", "'", "t", "L", "l", "ve", "Re", "1", " ", "\n"],
  [" ", "  ", "\n", "\r", "\t", "\u00a0", "\u0085", "\u2003", "\u3000", "x", "!", "/", "1"],
  ["a", "Z", "ǅ", "ʰ", "ª", "中", "あ", "한", "\u0301", "\u0903", "\u20dd", "!", " ", "1", "Ⅷ"],
  ["的", "是", "一", "人", "工", "智", "能", "服", "务", "费", "用", "。", ",", "1", "A"],
  ["😀", "👩", "\u200d", "\ufe0f", "🏽", "🇩", "🇪", "♥", " ", "x", "\u20e3", "1"],
  ["{", "}", "(", ")", "[", "]", ";", ":", ".", "=", "==", "->", "/", "//", "\n", "\t", "    ", "x", "_", "0"],
  ["\u0000", "\u007f", "\u0080", "\ufffd", "\uffff", "\u{10ffff}", "\u{e0061}", "\u{f0000}", "\ufdfa", "\u1e00", "a", " "],
  ["đ", "ư", "ơ", "ё", "ж", "Щ", "ש", "ع", "١", "क", "्", "ा", "ก", "็", " ", "-"],
];
alphabets.forEach((alphabet, i) => {
  for (let seed = 1; seed <= 4; seed++) random(alphabet, 16 * i + seed, 1000);
});

for (let from = 0; from < 0x20000; from += 0x1000) probe(from, from + 0x1000);
for (const from of [0x2a000, 0x2b000, 0x2e000, 0x2f000, 0x31000, 0x32000, 0x33000, 0xe0000, 0x10f000]) probe(from, from + 0x1000);
