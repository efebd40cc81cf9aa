// TeX's mathematics, as models write it, to MathML nodes. The characters of a formula become text of nodes and
// nothing else; names it does not know are shown as they are, in the colour of errors.
import { commands } from "/page/math/commands.js";
import { inAlphabet } from "/page/math/letters.js";
import { atom, math, MathError, row, rowNodes, symbolAtom } from "/page/math/nodes.js";
import { kCharacters, kDelimiters, kSymbols } from "/page/math/symbols.js";

const kLongest = 20000;  // characters of a formula
const kDeepest = 80;     // braces, and commands without braces, within each other

const kRowEnds = new Set(["", "}", "&", "\\\\", "\\cr", "\\newline", "\\end", "\\right", "\\middle"]);
const kPlainToken = /\\(?:[a-zA-Z]+\*?|[\s\S])|[\s\S]/uy;
const kNumber = /(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+/y;

export class Parser {
  constructor(text) {
    if (text.length > kLongest)
      throw new MathError(`a formula of ${text.length} characters; at most ${kLongest} are shown`);
    this.text = text.replace(/(?<!\\)((?:\\\\)*)%[^\n]*(?:\n|$)/g, "$1");
    this.at = 0;
    this.depth = 0;
    this.alphabet = "";
  }

  // ---- tokens

  skipSpace() {
    while (this.at < this.text.length && /\s/.test(this.text[this.at])) ++this.at;
  }

  // The next token without taking it; "" at the end. A star belongs to a name only where such a name is known.
  peek() {
    this.skipSpace();
    kPlainToken.lastIndex = this.at;
    const token = kPlainToken.exec(this.text)?.[0] ?? "";
    return token.length > 2 && token.endsWith("*") && !commands.has(token.slice(1)) ? token.slice(0, -1) : token;
  }

  take() {
    const token = this.peek();
    this.at += token.length;
    return token;
  }

  takeIf(token) {
    if (this.peek() !== token) return false;
    this.at += token.length;
    return true;
  }

  expect(token) {
    if (!this.takeIf(token)) throw new MathError(`${token} expected before ${this.peek() || "the end"}`);
  }

  // Text between braces, as it was written.
  rawArgument() {
    this.skipSpace();
    if (this.text[this.at] !== "{") return this.take();
    const start = ++this.at;
    for (let depth = 1; this.at < this.text.length; ++this.at) {
      const letter = this.text[this.at];
      if (letter === "\\") ++this.at;
      else if (letter === "{") ++depth;
      else if (letter === "}" && --depth === 0) return this.text.slice(start, this.at++);
    }
    throw new MathError("a brace is not closed");
  }

  rawOption() {
    this.skipSpace();
    if (this.text[this.at] !== "[") return null;
    const end = this.text.indexOf("]", this.at);
    if (end < 0) return null;
    const text = this.text.slice(this.at + 1, end);
    this.at = end + 1;
    return text;
  }

  // ---- rows and arguments

  within(parse) {
    if (++this.depth > kDeepest) throw new MathError(`more than ${kDeepest} levels`);
    const { alphabet } = this;
    const value = parse();
    this.alphabet = alphabet;
    --this.depth;
    return value;
  }

  // Atoms until one of the tokens that end a row, which is left.
  row() {
    return this.within(() => {
      let atoms = [];
      for (;;) {
        const token = this.peek();
        if (kRowEnds.has(token)) return atoms;
        if (token === "\\over" || token === "\\choose" || token === "\\atop") atoms = [this.infix(atoms)];
        else atoms.push(this.withScripts());
      }
    });
  }

  infix(above) {
    const name = this.take();
    const bar = name === "\\over" ? {} : { linethickness: "0" };
    const fraction = math("mfrac", bar, row(above), row(this.row()));
    if (name !== "\\choose") return atom("inner", fraction);
    return atom("inner", math("mrow", {}, math("mo", {}, "("), fraction, math("mo", {}, ")")));
  }

  // What a command works on: a group, or the next atom.
  argumentAtoms() {
    if (!this.takeIf("{")) {
      const token = this.peek();
      if (!token || token === "}" || token === "&") throw new MathError("an argument is missing");
      // \frac12 is a half: without braces an argument is one digit.
      return [/\d/.test(token) ? this.number(this.take()) : this.within(() => this.atom())];
    }
    const atoms = this.row();
    this.expect("}");
    return atoms;
  }

  argument(tight = false) {
    return row(this.argumentAtoms(), tight);
  }

  // An argument in brackets, or null.
  option() {
    this.skipSpace();
    const text = this.rawOption();
    return text === null ? null : row(this.inner(text));
  }

  // Atoms of a piece of text, in the same alphabet and no deeper than it would be here.
  inner(text) {
    const parser = new Parser(text);
    parser.alphabet = this.alphabet;
    parser.depth = this.depth;
    const atoms = parser.row();
    if (parser.peek()) throw new MathError(`${parser.peek()} is not expected`);
    return atoms;
  }

  delimiter() {
    const token = this.take();
    const text = kDelimiters.get(token) ?? kDelimiters.get(token.slice(1));
    if (text === undefined) throw new MathError(`${token || "the end"} is no delimiter`);
    return text;
  }

  // ---- atoms

  withScripts() {
    const token = this.peek();
    const base = token === "^" || token === "_" || token === "'" ? atom("ordinary", math("mrow")) : this.atom();
    let [below, above, primes, limits] = [null, null, "", base.limits ?? ["large", "limit"].includes(base.kind)];
    for (;;) {
      if (this.takeIf("'")) primes += "′";
      else if (this.takeIf("\\limits")) limits = true;
      else if (this.takeIf("\\nolimits")) limits = false;
      else if (this.peek() === "^" && !above) { this.take(); above = this.argument(true); }
      else if (this.peek() === "_" && !below) { this.take(); below = this.argument(true); }
      else if (this.peek() === "^" || this.peek() === "_") throw new MathError(`two ${this.peek()} at one base`);
      else break;
    }
    if (primes) {
      // Four of them are one character, so are three and two: their own spacing is right.
      const mark = math("mo", { lspace: "0", rspace: "0" }, { 2: "″", 3: "‴", 4: "⁗" }[primes.length] ?? primes);
      above = above ? math("mrow", {}, mark, above) : mark;
    }
    return this.scripted(base, below, above, limits);
  }

  scripted(base, below, above, limits) {
    if (!below && !above) return base;
    const { node } = base;
    const [under, over, both] = limits ? ["munder", "mover", "munderover"] : ["msub", "msup", "msubsup"];
    // Limits asked for where the operator itself would have them beside it in running text.
    if (limits && base.limits && node.localName === "mo") node.setAttribute("movablelimits", "false");
    if (below && above) return atom(base.kind, math(both, {}, node, below, above));
    return atom(base.kind, below ? math(under, {}, node, below) : math(over, {}, node, above));
  }

  atom() {
    const token = this.take();
    if (token === "{") return this.group();
    if (token[0] === "\\" && token.length > 1) return this.command(token.slice(1));
    if (token === "~") return atom("space", math("mtext", {}, "\u00a0"));
    if (/[\d.]/.test(token)) {
      kNumber.lastIndex = this.at - 1;
      const number = kNumber.exec(this.text)?.[0];
      this.at += (number?.length ?? 1) - 1;
      if (number) return this.number(number);
    }
    return this.character(token);
  }

  group() {
    const atoms = this.row();
    this.expect("}");
    // {,} and {=} are how TeX is told to leave out the space around.
    if (atoms.length === 1 && atoms[0].node.localName === "mo") {
      atoms[0].node.setAttribute("lspace", "0");
      atoms[0].node.setAttribute("rspace", "0");
    }
    return atoms.length === 1 ? atom(atoms[0].kind === "function" ? "function" : "ordinary", atoms[0].node) :
      atom("ordinary", math("mrow", {}, ...rowNodes(atoms)));
  }

  number(text) {
    const shown = this.alphabet ? [...text].map((digit) => inAlphabet(digit, this.alphabet)).join("") : text;
    return atom("number", math("mn", {}, shown));
  }

  character(token) {
    if (/[A-Za-z]/.test(token)) return this.letters(token);
    const kind = kCharacters.get(token);
    if (kind) return symbolAtom(kind, token === "*" ? "∗" : token, this.alphabet, inAlphabet);
    return symbolAtom("ordinary", token, this.alphabet, inAlphabet);
  }

  // A word in an upright alphabet is one name; elsewhere each letter is a variable.
  letters(first) {
    if (this.alphabet !== "upright") return symbolAtom("ordinary", first, this.alphabet, inAlphabet);
    let word = first;
    while (/[A-Za-z]/.test(this.text[this.at] ?? "")) word += this.text[this.at++];
    return atom("ordinary", math("mi", { mathvariant: "normal" }, word));
  }

  command(name) {
    const command = commands.get(name);
    if (command) return command(this, name);
    const symbol = kSymbols.get(name);
    if (symbol) return symbolAtom(symbol.kind, symbol.text, this.alphabet, inAlphabet);
    return atom("ordinary", math("mtext", { class: "tex-unknown" }, "\\" + name));
  }
}
