// MathML nodes, and how atoms stand beside each other in a row.
const kNamespace = "http://www.w3.org/1998/Math/MathML";

// A formula that cannot be shown; the message says why.
export class MathError extends Error {}

// Children of one node. A browser looks at all operators of a row again for each that is added, so that a row of
// 16,000 would take it seconds; nobody reads one of 2,000.
const kWidest = 2000;

export function math(name, attributes = {}, ...children) {
  if (children.length > kWidest)
    throw new MathError(`${children.length} parts in a row; at most ${kWidest} are shown`);
  const node = document.createElementNS(kNamespace, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

export const em = (width) => `${+width.toFixed(4)}em`;
export const space = (width) => math("mspace", { width: em(width) });

// An atom is what TeX sets apart: a node and how it behaves in a row. Kinds: ordinary, number, binary, relation,
// large, integral, function, limit, open, close, fence, punctuation, dots, inner, space.
export const atom = (kind, node) => ({ kind, node });

const kThin = 1 / 6;
const endsWord = new Set(["ordinary", "number", "close", "function", "limit", "inner"]);
const startsWord = new Set(["ordinary", "number", "function", "limit", "large", "integral", "inner", "dots"]);
// In front of what a minus is a sign and not a subtraction.
const beforeSign = new Set([undefined, "binary", "relation", "open", "punctuation", "large", "limit", "function"]);

// Nodes of a row. The browser spaces operators by its own dictionary; what it cannot know is added: signs, the gap
// after the name of a function, and that scripts have no gaps. tight: whether the row is a script.
export function rowNodes(atoms, tight = false) {
  const nodes = [];
  let previous;
  for (const { kind: own, node } of atoms) {
    // A bar opens where something has to come, and closes elsewhere.
    const kind = own !== "fence" ? own : beforeSign.has(previous) ? "open" : "close";
    if (kind === "binary" && beforeSign.has(previous)) node.setAttribute("form", "prefix");
    if (tight && (kind === "binary" || kind === "relation" || kind === "punctuation") && node.localName === "mo") {
      node.setAttribute("lspace", "0");
      node.setAttribute("rspace", "0");
    }
    const named = (of) => of === "function" || of === "limit";
    if ((named(kind) && endsWord.has(previous)) || (named(previous) && startsWord.has(kind)))
      nodes.push(space(kThin));
    nodes.push(node);
    if (kind !== "space") previous = kind;
  }
  return nodes;
}

// One node for a row: the node itself where there is just one.
export function row(atoms, tight = false) {
  const nodes = rowNodes(atoms, tight);
  return nodes.length === 1 ? nodes[0] : math("mrow", {}, ...nodes);
}

const kTight = { lspace: "0", rspace: "0" };
const kFormOf = { open: "prefix", close: "postfix" };

// What stands for one character or word of a kind.
export function symbolAtom(kind, text, alphabet, letter) {
  switch (kind) {
    case "ordinary": return atom(kind, letterNode(text, alphabet, letter));
    case "function": return atom(kind, math("mi", {}, text));
    case "limit": return atom(kind, math("mo", { movablelimits: "true", lspace: "0", rspace: "0" }, text));
    case "large": return atom(kind, math("mo", {}, text));
    case "integral": return atom(kind, math("mo", { rspace: "0" }, text));
    case "open": case "close":
      return atom(kind, math("mo", { stretchy: "false", form: kFormOf[kind], ...(/[!?]/.test(text) ? kTight : {}) }, text));
    case "fence": return atom(kind, math("mo", { stretchy: "false", lspace: "0", rspace: "0" }, text));
    case "dots": return atom(kind, math(text === "…" || text === "⋯" ? "mo" : "mi", text === "…" || text === "⋯" ?
      { lspace: "0", rspace: em(kThin) } : {}, text));
    case "relation": return atom(kind, relationNode(text));
    default:
      return atom(
        kind, math("mo", { ...(text === "." || text === "·" ? { lspace: "0" } : {}) }, text === "-" ? "−" : text));
  }
}

// The browser's dictionary has fences where TeX has relations, and stretches arrows where a row is high.
function relationNode(text) {
  const fence = text === "∣" || text === "∥" || text === "|";
  const spaced = fence || text === ":" ? { lspace: em(5 / 18), rspace: em(5 / 18) } : {};
  return math("mo", { stretchy: "false", ...spaced }, text);
}

function letterNode(text, alphabet, letter) {
  if (!/[\p{L}\p{N}∂∇∞]/u.test(text)) return math("mi", {}, text);
  if (alphabet === "upright") return math("mi", { mathvariant: "normal" }, text);
  // TeX sets capital Greek upright, as it does what is no letter of a language.
  if (!alphabet && /[\u0391-\u03a9∂∇∞ℝℕℤℚℂℜℑℵℏℓ℘ð]/.test(text) && text !== "ℓ" && text !== "∂") {
    return math("mi", { mathvariant: "normal" }, text);
  }
  if (!alphabet) return math("mi", {}, text);
  return math("mi", { mathvariant: "normal" }, letter(text, alphabet));
}
