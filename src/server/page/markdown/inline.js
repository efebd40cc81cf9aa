// Markdown within a line, to nodes: emphasis, code, links, footnote marks, formulae. What is none of these stays
// text.
import { element } from "/page/dom.js";
import { dollarEnds, takeFormula } from "/page/math/find.js";

const kDelimiters = [["**", "strong"], ["__", "strong"], ["~~", "s"], ["*", "em"], ["_", "em"]];
const kPlain = /[^\\`*_~[!<\nh$]+/y;
const kEscape = /\\[!-/:-@[-`{-~]/y;
const kLink = /!?\[((?:[^[\]\\]|\\.)*)\]\(\s*(?!\s)<?([^\s<>()]*(?:\([^\s()]*\)[^\s<>()]*)?)>?(?:\s+"[^"]*")?\s*\)/y;
const kFootnote = /\[\^([^\]\s^]{1,40})\]/y;
const kAddress = /<(https?:[^\s<>]+|mailto:[^\s<>]+)>/y;
const kBareAddress = /https?:\/\/[^\s<>"'`)\]]*[^\s<>"'`)\].,;:!?*_]/y;
// HTML that models write where Markdown has nothing; without attributes, and as these elements only.
const kTag = /<br\s*\/?>|<(sub|sup|kbd|u|mark)>([^<]{1,200})<\/\1>/y;
const kDeepest = 8;
const kLongWord = 28;  // characters
const kLongestWord = 400;

const matchAt = (pattern, text, at) => { pattern.lastIndex = at; return pattern.exec(text); };

function link(target, children) {
  if (!/^(https?:|mailto:)/i.test(target)) return element("span", {}, ...children);
  return element("a", { href: target, rel: "noopener noreferrer", target: "_blank" }, ...children);
}

// Long names and addresses break after their punctuation; what is copied of them has no break.
function breakable(text) {
  if (text.length < kLongWord || text.length > kLongestWord) return [text];
  const parts = text.split(/(?=\w)(?<=\w[^\w\s]{1,4}|[a-z0-9]_)/i);
  return parts.flatMap((part, at) => (at ? [element("wbr"), part] : [part]));
}

class Line {
  constructor(text, depth) {
    this.text = text;
    this.depth = depth;
    this.hopeless = new Set();  // marks that nothing closes from here on: looked for once, not at each of a thousand
    this.nodes = [];
    this.plain = "";
  }

  inner(text) {
    return inlineNodes(text, this.depth + 1);
  }

  // Where what a mark at `at` opens is closed, or -1: closed, and not right after a space.
  closing(at, mark) {
    const { text } = this;
    for (let end = text.indexOf(mark, at + mark.length + 1); end >= 0; end = text.indexOf(mark, end + 1)) {
      if (/\s/.test(text[end - 1])) continue;
      if (text[end + mark.length] === mark[0] || (mark.length === 1 && text[end - 1] === mark)) continue;
      if (mark[0] === "_" && /\w/.test(text[end + mark.length] ?? "")) continue;
      return end;
    }
    return -1;
  }

  delimited(at) {
    for (const [mark, name] of kDelimiters) {
      if (!this.text.startsWith(mark, at) || this.hopeless.has(mark)) continue;
      if (mark[0] === "_" && /\w/.test(this.text[at - 1] ?? "")) continue;
      if (/\s/.test(this.text[at + mark.length] ?? " ")) continue;
      const end = this.closing(at, mark);
      if (end >= 0)
        return [element(name, {}, ...this.inner(this.text.slice(at + mark.length, end))), end + mark.length];
      this.hopeless.add(mark);
    }
    return null;
  }

  code(at) {
    const mark = /`+/y;
    const open = matchAt(mark, this.text, at)[0];
    for (let end = this.hopeless.has(open) ? -1 : this.text.indexOf(open, at + open.length); end >= 0;) {
      const run = matchAt(mark, this.text, end)[0].length;
      if (run === open.length) {
        const code = this.text.slice(at + open.length, end).replace(/^ (.*) $/s, "$1");
        return [element("code", {}, ...breakable(code)), end + run];
      }
      end = this.text.indexOf(open, end + run);
    }
    this.hopeless.add(open);
    return [open, at + open.length];
  }

  // Marks of notes get their number once the note itself is there.
  footnote(at) {
    const match = matchAt(kFootnote, this.text, at);
    if (!match) return null;
    const node = element("sup", { className: "footnote-mark", textContent: match[0] });
    node.dataset.label = match[1].toLowerCase();
    return [node, at + match[0].length];
  }

  linked(at) {
    const match = matchAt(kLink, this.text, at);
    return match && [link(match[2], this.inner(match[1] || match[2])), at + match[0].length];
  }

  address(at) {
    const match = matchAt(kAddress, this.text, at);
    if (match) return [link(match[1], breakable(match[1])), at + match[0].length];
    const tag = matchAt(kTag, this.text, at);
    if (tag) return [tag[1] ? element(tag[1], {}, ...this.inner(tag[2])) : element("br"), at + tag[0].length];
    const bare = /\w/.test(this.text[at - 1] ?? "") ? null : matchAt(kBareAddress, this.text, at);
    return bare && [link(bare[0], breakable(bare[0])), at + bare[0].length];
  }

  formula(at) {
    this.dollars ??= dollarEnds(this.text);
    const found = takeFormula(this.text, at, this.dollars, this.hopeless);
    return found && [found.node, found.end];
  }

  // [node or text, where it ends] of what begins with a special character, or null.
  special(at) {
    const letter = this.text[at];
    if (letter === "\\") {
      const escaped = matchAt(kEscape, this.text, at);
      return this.formula(at) ?? (escaped && [escaped[0][1], at + 2]);
    }
    if (letter === "$") return this.formula(at);
    if (letter === "\n") return [at > 1 && this.text.startsWith("  ", at - 2) ? element("br") : "\n", at + 1];
    if (letter === "`") return this.code(at);
    if (letter === "[") return this.footnote(at) ?? this.linked(at);
    if (letter === "!") return this.text[at + 1] === "[" ? this.linked(at) : null;
    if (letter === "<" || letter === "h") return this.address(at);
    return this.delimited(at);
  }

  add(part) {
    if (typeof part === "string") {
      this.plain += part;
      return;
    }
    if (this.plain) this.nodes.push(this.plain);
    this.plain = "";
    this.nodes.push(part);
  }

  read() {
    for (let at = 0; at < this.text.length;) {
      const run = matchAt(kPlain, this.text, at);
      const [part, end] = run ? [run[0], at + run[0].length] : this.special(at) ?? [this.text[at], at + 1];
      this.add(part);
      at = end;
    }
    if (this.plain) this.nodes.push(this.plain);
    return this.nodes;
  }
}

export function inlineNodes(text, depth = 0) {
  return depth > kDeepest ? [text] : new Line(text, depth).read();
}
