// Words within a formula: \text and its like.
import { atom, math } from "/page/math/nodes.js";

const kClassOf = { textbf: "tex-bold", textit: "tex-italic", emph: "tex-italic", textsf: "tex-sans", texttt: "tex-mono" };
const kEscapes = /\\([%$#&_{} ])|\\textbackslash|\\(?:ldots|dots)\s?|``|''|---?|~|\\,/g;
const kMeanings = { "``": "“", "''": "”", "---": "—", "--": "–", "~": "\u00a0", "\\,": "\u2009", "\\textbackslash": "\\" };

const plain = (text) => text.replace(kEscapes, (found, escaped) => escaped ?? kMeanings[found] ?? "…").replace(/[{}]/g, "")
  .replace(/\s+/g, " ").replace(/^ | $/g, "\u00a0");

// Words, mathematics between dollars, and words in another style within them.
const kParts = /(?<!\\)\$((?:[^$\\]|\\.)+)\$|\\(textbf|textit|emph|textsf|texttt|textrm|text|textnormal)\s*\{((?:[^{}\\]|\\.)*)\}/;

function parts(parser, text, className) {
  const nodes = [];
  for (let rest = text; rest;) {
    const match = kParts.exec(rest);
    const words = match ? rest.slice(0, match.index) : rest;
    if (words) nodes.push(math("mtext", className ? { class: className } : {}, plain(words)));
    if (!match) break;
    if (match[1] !== undefined) nodes.push(...parser.within(() => parser.inner(match[1])).map((inner) => inner.node));
    else if (match[3]) nodes.push(math("mtext", { class: kClassOf[match[2]] ?? className ?? "" }, plain(match[3])));
    rest = rest.slice(match.index + match[0].length);
  }
  return nodes;
}

export function textAtom(parser, name) {
  const nodes = parts(parser, parser.rawArgument(), kClassOf[name]);
  return atom("ordinary", nodes.length === 1 ? nodes[0] : math("mrow", {}, ...nodes));
}
