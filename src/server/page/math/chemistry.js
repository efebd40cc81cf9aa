// Chemical formulae and equations, \ce{2 H2 + O2 -> 2 H2O}: the part of mhchem that people write.
import { atom, math, space } from "/page/math/nodes.js";

const kArrows = { "->": "→", "<-": "←", "<->": "↔", "<=>": "⇌", "=>": "⇒" };
// arrow with text above and below it; state; bond; sub or superscript; element; number; the rest. What is in brackets
// is bounded: ten thousand that nothing closes would each look for their end.
const kPart = new RegExp(
  [
    "(?<arrow><=>|<->|->|<-|=>)(?:\\[(?<above>[^\\]]{0,200})\\])?(?:\\[(?<below>[^\\]]{0,200})\\])?",
    "(?<state>\\((?:s|l|g|aq)\\))",
    "\\^(?:\\{(?<powers>[^}]{0,200})\\}|(?<power>[0-9]*[+-]|[0-9.*]+))",
    "_(?:\\{(?<indices>[^}]{0,200})\\}|(?<index>[0-9A-Za-z]))",
    "(?<element>[A-Za-z]+)",
    "(?<number>\\d+(?:[./]\\d+)?)",
    "(?<gap>\\s+)",
    "(?<sign>(?<=\\s)[+-](?=\\s))",
    "(?<charge>[+-](?=[\\s)\\]]|$))",
    "(?<other>[^])",
  ].join("|"),
  "g");

const upright = (text) => math("mi", { mathvariant: "normal" }, text);
const sign = (text) => text.replace(/-/g, "−");

// Scripts belong to the nearest thing before them.
function addScript(nodes, kind, content) {
  const base = nodes.pop() ?? math("mrow");
  const [below, above] = ["msub", "msup"].map((name) => (base.localName === name ? base.children[1] : null));
  const inner = below || above ? base.children[0] : base;
  const [sub, sup] = kind === "msub" ? [content, above] : [below, content];
  nodes.push(sub && sup ? math("msubsup", {}, inner, sub, sup) : math(kind, {}, inner, content));
}

function arrowNode({ arrow, above, below }) {
  const mark = math("mo", { stretchy: "true", lspace: "0", rspace: "0" }, kArrows[arrow]);
  const label = (text) => math("mrow", {}, space(.7), math("mtext", {}, text ?? ""), space(.7));
  return below === undefined ? math("mover", {}, mark, label(above)) :
                               math("munderover", {}, mark, label(below), label(above));
}

export function chemistry(parser, text) {
  const nodes = [];
  let joined = false;  // whether what comes belongs to an element before it
  for (const { groups } of text.matchAll(kPart)) {
    const power = groups.powers ?? groups.power ?? groups.charge;
    const index = groups.indices ?? groups.index ?? (joined ? groups.number : undefined);
    if (groups.arrow) nodes.push(space(.28), arrowNode(groups), space(.28));
    else if (power !== undefined) addScript(nodes, "msup", math("mn", {}, sign(power)));
    else if (index !== undefined) addScript(nodes, "msub", math("mn", {}, index));
    else if (groups.state) nodes.push(math("mtext", {}, groups.state));
    else if (groups.element) nodes.push(upright(groups.element));
    else if (groups.number) nodes.push(math("mn", {}, groups.number), space(1 / 6));
    else if (groups.sign) nodes.push(math("mo", { form: "infix" }, sign(groups.sign)));
    else if (groups.other)
      nodes.push(math("mo", { stretchy: "false", lspace: "0", rspace: "0" },
        { "*": "⋅", "-": "−" }[groups.other] ?? groups.other));
    joined =
      Boolean(groups.element) || groups.other === ")" || groups.other === "]" || (joined && index !== undefined);
  }
  return atom("ordinary", math("mrow", {}, ...nodes));
}
