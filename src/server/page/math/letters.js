// Letters of the mathematical alphabets, which Unicode has as characters of their own: MathML Core knows no other way
// to make them bold, script or double-struck.

// Where A, a, Α, α and 0 of an alphabet lie; 0 is an alphabet that has none.
const kAlphabets = {
  bold: [0x1d400, 0x1d41a, 0x1d6a8, 0x1d6c2, 0x1d7ce],
  italic: [0x1d434, 0x1d44e, 0x1d6e2, 0x1d6fc, 0],
  "bold-italic": [0x1d468, 0x1d482, 0x1d71c, 0x1d736, 0x1d7ce],
  script: [0x1d49c, 0x1d4b6, 0, 0, 0],
  fraktur: [0x1d504, 0x1d51e, 0, 0, 0],
  "double-struck": [0x1d538, 0x1d552, 0, 0, 0x1d7d8],
  "sans-serif": [0x1d5a0, 0x1d5ba, 0, 0, 0x1d7e2],
  monospace: [0x1d670, 0x1d68a, 0, 0, 0x1d7f6],
};
// Those that Unicode had before it had the rest.
const kOlder = {
  italic: { h: "ℎ" },
  script: { B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ", e: "ℯ", g: "ℊ", o: "ℴ" },
  fraktur: { C: "ℭ", H: "ℌ", I: "ℑ", R: "ℜ", Z: "ℨ" },
  "double-struck": { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" },
};
const kGreekVariants = "∂ϵϑϰϕϱϖ";

// A letter or digit in an alphabet, or itself where the alphabet has none.
export function inAlphabet(letter, alphabet) {
  const starts = kAlphabets[alphabet];
  if (!starts) return letter;
  const older = kOlder[alphabet]?.[letter];
  if (older) return older;
  const at = (from, start) => (start ? String.fromCodePoint(start + letter.codePointAt(0) - from.codePointAt(0)) : letter);
  if (/^[A-Z]$/.test(letter)) return at("A", starts[0]);
  if (/^[a-z]$/.test(letter)) return at("a", starts[1]);
  if (/^[Α-Ω]$/u.test(letter)) return at("Α", starts[2]);
  if (/^[α-ω]$/u.test(letter)) return at("α", starts[3]);
  if (/^[0-9]$/.test(letter)) return at("0", starts[4]);
  if (letter === "∇" && starts[2]) return String.fromCodePoint(starts[2] + 25);
  const variant = kGreekVariants.indexOf(letter);
  return variant >= 0 && starts[3] ? String.fromCodePoint(starts[3] + 25 + variant) : letter;
}

// Commands that choose an alphabet: for their argument, or (old ones) for the rest of the group.
export const kAlphabetCommands = new Map(Object.entries({
  mathrm: "upright", mathbf: "bold", mathit: "italic", mathbb: "double-struck", mathcal: "script", mathscr: "script",
  mathfrak: "fraktur", mathsf: "sans-serif", mathtt: "monospace", boldsymbol: "bold-italic", bm: "bold-italic", pmb: "bold-italic", bold: "bold",
  mathnormal: "", Bbb: "double-struck", frak: "fraktur", symbf: "bold", symit: "italic", mathup: "upright", bbm: "double-struck",
  mathbbm: "double-struck", mathds: "double-struck",
}));
export const kAlphabetSwitches = new Map(Object.entries({
  rm: "upright", bf: "bold", it: "italic", cal: "script", sf: "sans-serif", tt: "monospace",
}));
