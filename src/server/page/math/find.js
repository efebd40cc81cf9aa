// Where formulae are in a text. Dollars are money far more often than mathematics, so a dollar has to look like
// TeX's: nothing blank inside it, no digit or word right behind it, and no prose between.
import { mathNode } from "/page/math/tex.js";

const kLongestInline = 2000;
// "$5, or 5$": a number and then words is a price and what was said about it.
const isPrice = (tex) => /^\d/.test(tex) && /(?<![\\a-zA-Z])[a-zA-Z]{2,}/.test(tex) && !/[\\^_{}=]/.test(tex);
// What follows "the $n$th" and "two $x$s".
const kEnding = /(?:th|st|nd|rd|s)\b/y;

function mayClose(text, at) {
  if (/[\s\\$]/.test(text[at - 1] ?? " ")) return false;
  if (!/[\p{L}\p{N}$]/u.test(text[at + 1] ?? "")) return true;
  kEnding.lastIndex = at + 1;
  return kEnding.test(text);
}

// Where each single dollar that may close a formula is, found once for a whole text.
export function dollarEnds(text) {
  const ends = [];
  for (let at = text.indexOf("$"); at >= 0; at = text.indexOf("$", at + 1)) if (mayClose(text, at)) ends.push(at);
  return ends;
}

function endAfter(ends, at) {
  let [low, high] = [0, ends.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle] > at) high = middle;
    else low = middle + 1;
  }
  return ends[low] ?? -1;
}

function display(tex) {
  const node = document.createElement("span");
  node.className = "math-block";
  node.append(mathNode(tex, true));
  return node;
}

function between(text, at, open, close, hopeless) {
  if (!text.startsWith(open, at) || hopeless.has(open)) return null;
  const end = text.indexOf(close, at + open.length);
  if (end < 0) hopeless.add(open);
  const tex = end < 0 ? "" : text.slice(at + open.length, end);
  return tex.trim() ? { tex, end: end + close.length } : null;
}

// The formula that begins at `at`: its node and its end; or null.
export function takeFormula(text, at, ends, hopeless) {
  const lined = between(text, at, "\\(", "\\)", hopeless);
  if (lined) return { node: mathNode(lined.tex, false), end: lined.end };
  const shown = between(text, at, "\\[", "\\]", hopeless) ?? between(text, at, "$$", "$$", hopeless);
  if (shown) return { node: display(shown.tex), end: shown.end };
  if (text[at] !== "$" || text[at + 1] === "$" || text[at - 1] === "$" || /\s/.test(text[at + 1] ?? " ")) return null;
  const end = endAfter(ends, at + 1);
  const tex = end < 0 ? "" : text.slice(at + 1, end);
  if (!tex || tex.length > kLongestInline || isPrice(tex)) return null;
  return { node: mathNode(tex, false), end: end + 1 };
}

// ---- whole lines

const kOpen = /^ {0,3}(\$\$|\\\[)(?!\$)/;
const kEnvironment =
  /^ {0,3}\\begin\{((?:align|gather|equation|multline|eqnarray|alignat|flalign|split|displaymath)\*?)\}/;
const kMostLines = 100;
const kCloses = { $$: /^(.*?)\$\$\s*(?:[.,;:]\s*)?$/, "\\[": /^(.*?)\\\]\s*(?:[.,;:]\s*)?$/ };

// A formula that has its lines for itself: its first line after it and its TeX, or null. No blank line is within.
export function takeFormulaLines(lines, at) {
  const environment = kEnvironment.exec(lines[at]);
  const open = environment ? null : kOpen.exec(lines[at]);
  if (!environment && !open) return null;
  const parts = [];
  for (let next = at; next < Math.min(lines.length, at + kMostLines) && lines[next].trim(); ++next) {
    const line = next === at && open ? lines[at].slice(open[0].length) : lines[next];
    if (environment) {
      parts.push(line);
      if (line.trimEnd().endsWith(`\\end{${environment[1]}}`)) return { tex: parts.join("\n"), next: next + 1 };
    } else {
      const close = kCloses[open[1]].exec(line);
      if (close) {
        const tex = [...parts, close[1]].join("\n");
        return tex.trim() && !tex.includes(open[1]) ? { tex, next: next + 1 } : null;
      }
      parts.push(line);
    }
  }
  return null;
}

export function formulaBlock(tex) {
  const node = document.createElement("div");
  node.className = "math-block";
  node.append(mathNode(tex, true));
  return node;
}
