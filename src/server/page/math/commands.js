// TeX's commands that are more than a symbol: name -> (parser, name) => atom.
import { environment } from "/page/math/environments.js";
import { kAlphabetCommands, kAlphabetSwitches } from "/page/math/letters.js";
import { atom, em, math, row, rowNodes, space } from "/page/math/nodes.js";
import { kAccents, kLongArrows, kSpaces, kUnderAccents, kWideAccents } from "/page/math/symbols.js";
import { chemistry } from "/page/math/chemistry.js";
import { textAtom } from "/page/math/text.js";

export const commands = new Map();
const define = (names, command) => { for (const name of names.trim().split(/\s+/)) commands.set(name, command); };

const styled = (displaystyle, level, ...nodes) =>
  math("mstyle", { displaystyle: String(displaystyle), scriptlevel: String(level) }, ...nodes);
// Browsers give a delimiter that may grow the width of its largest size, so one that need not grow must not.
const flat = (node) => !/^(mfrac|mtable|munder|mover|munderover|msqrt|mroot|mstyle|mpadded)$/.test(node.localName) &&
  !/[∑∏∐⋃⋂⋁⋀⨁⨂⨀⨄⨆∫∬∭∮]/.test(node.localName === "mo" ? node.textContent : "") && [...node.children].every(flat);
function fenced(open, close, ...nodes) {
  const stretchy = String(!nodes.every(flat));
  const fence = (text, form) => (text ? [math("mo", { form, stretchy, lspace: "0", rspace: "0" }, text)] : []);
  return math("mrow", {}, ...fence(open, "prefix"), ...nodes, ...fence(close, "postfix"));
}

// ---- fractions, roots

const kStyles = { d: [true, 0], t: [false, 0] };
function fraction(parser, name) {
  const binomial = name.endsWith("binom");
  const node = math("mfrac", binomial ? { linethickness: "0" } : {}, parser.argument(), parser.argument());
  const whole = binomial ? fenced("(", ")", node) : node;
  return atom("inner", kStyles[name[0]] ? styled(...kStyles[name[0]], whole) : whole);
}
define("frac dfrac tfrac binom dbinom tbinom", fraction);
define("cfrac", (parser) => {
  parser.rawOption();
  const above = styled(true, 0, parser.argument());
  return atom("inner", styled(true, 0, math("mfrac", {}, above, styled(true, 0, parser.argument()))));
});
define("genfrac", (parser) => {
  const [open, close, bar, style] = [0, 1, 2, 3].map(() => parser.rawArgument());
  const node = math("mfrac", bar ? { linethickness: bar } : {}, parser.argument(), parser.argument());
  const text = (raw) => (raw ? parser.inner(raw).map((inner) => inner.node.textContent).join("") : "");
  const whole = fenced(text(open), text(close), node);
  return atom("inner", style === "" ? whole : styled(style === "0", Math.max(0, Number(style) - 1), whole));
});
define("sfrac nicefrac",
  (parser) => atom("inner",
    math("mrow", {}, parser.argument(), math("mo", { lspace: "0", rspace: "0" }, "/"), parser.argument())));
define("sqrt", (parser) => {
  const degree = parser.option();
  const inside = parser.argument();
  return atom("ordinary", degree ? math("mroot", {}, inside, degree) : math("msqrt", {}, inside));
});

// ---- delimiters

define("left", (parser) => {
  const open = parser.delimiter();
  const nodes = rowNodes(parser.row());
  while (parser.takeIf("\\middle")) {
    nodes.push(
      math("mo", { form: "infix", stretchy: "true", lspace: em(1 / 6), rspace: em(1 / 6) }, parser.delimiter()),
      ...rowNodes(parser.row()));
  }
  parser.expect("\\right");
  return atom("inner", fenced(open, parser.delimiter(), ...nodes));
});

const kSizes = { big: 1.195, Big: 1.793, bigg: 2.393, Bigg: 2.991 };
function sized(parser, name) {
  const [, size, side] = /^([bB]igg?)([lrm]?)$/.exec(name);
  const text = parser.delimiter();
  const kinds = {
    l: ["open", "prefix"],
    r: ["close", "postfix"],
    m: ["relation", "infix"],
    "": ["ordinary", "prefix"]
  };
  const [kind, form] = kinds[side];
  const gap = side === "m" ? em(5 / 18) : "0";
  const height = em(kSizes[size]);
  return atom(kind, math("mo", { form, stretchy: "true", symmetric: "true", minsize: height, maxsize: height,
    lspace: gap, rspace: gap }, text));
}
define(Object.keys(kSizes).flatMap((size) => ["", "l", "r", "m"].map((side) => size + side)).join(" "), sized);

// ---- above and below

function accent(parser, name) {
  const wide = kWideAccents.has(name);
  const mark =
    math("mo", { stretchy: String(wide), lspace: "0", rspace: "0" }, kAccents.get(name) ?? kWideAccents.get(name));
  const node = math("mover", { accent: "true" }, parser.argument(), mark);
  // What stands at a brace stands above it, not beside.
  return { ...atom("ordinary", node), limits: /brace|bracket|group|paren/.test(name) };
}
define([...kAccents.keys(), ...kWideAccents.keys()].join(" "), accent);
define([...kUnderAccents.keys()].join(" "), (parser, name) => {
  const mark = math("mo", { stretchy: "true", lspace: "0", rspace: "0" }, kUnderAccents.get(name));
  const node = math("munder", { accentunder: "true" }, parser.argument(), mark);
  return { ...atom("ordinary", node), limits: /brace|bracket|group|paren/.test(name) };
});
define("overset stackrel", (parser, name) => {
  const above = parser.argument(true);
  const [base] = asOne(parser.argumentAtoms());
  return atom(name === "stackrel" ? "relation" : base.kind, math("mover", {}, base.node, above));
});
define("underset", (parser) => {
  const below = parser.argument(true);
  const [base] = asOne(parser.argumentAtoms());
  return atom(base.kind, math("munder", {}, base.node, below));
});
const padded = (node) => math("mrow", {}, space(.7), node, space(.7));  // so that an arrow is longer than its label
const asOne = (atoms) => (atoms.length === 1 ? atoms : [atom("ordinary", row(atoms))]);
define([...kLongArrows.keys()].join(" "), (parser, name) => {
  const below = parser.option();
  const above = parser.argument(true);
  const arrow = math("mo", { stretchy: "true", lspace: "0", rspace: "0" }, kLongArrows.get(name));
  const node =
    below ? math("munderover", {}, arrow, padded(below), padded(above)) : math("mover", {}, arrow, padded(above));
  return atom("relation", math("mrow", {}, space(5 / 18), node, space(5 / 18)));
});
define("substack", (parser) => {
  parser.expect("{");
  const node = environment(parser, "substack");
  parser.expect("}");
  return atom("ordinary", node);
});

// ---- styles, alphabets, colours: for an argument, or for the rest of the group

for (const [name, alphabet] of kAlphabetCommands) {
  commands.set(name, (parser) => parser.within(() => {
    parser.alphabet = alphabet;
    const atoms = parser.argumentAtoms();
    return atoms.length === 1 ? atoms[0] : atom("ordinary", row(atoms));
  }));
}
for (const [name, alphabet] of kAlphabetSwitches) {
  commands.set(name, (parser) => parser.within(() => {
    parser.alphabet = alphabet;
    return atom("ordinary", row(parser.row()));
  }));
}
const kStyleSwitches = {
  displaystyle: [true, 0],
  textstyle: [false, 0],
  scriptstyle: [false, 1],
  scriptscriptstyle: [false, 2]
};
define(Object.keys(kStyleSwitches).join(" "), (parser, name) =>
  atom("ordinary", styled(...kStyleSwitches[name], ...rowNodes(parser.row()))));
define("mathchoice", (parser) => {
  const kinds = [0, 1, 2, 3].map(() => parser.argument());
  return atom("ordinary", kinds[1]);
});

const kColour = /^(#[0-9a-f]{3}|#[0-9a-f]{6}|[a-z]{3,20})$/i;
const colourOf = (text) => (kColour.test(text.trim()) ? text.trim() : "inherit");
define("href url", (parser, name) => {
  const address = parser.rawArgument();  // a link in a formula is only its text
  return name === "href" ? atom("ordinary", parser.argument()) : atom("ordinary", math("mtext", {}, address));
});
define("textcolor colorbox", (parser) => {
  const mathcolor = colourOf(parser.rawArgument());
  return atom("ordinary", math("mstyle", { mathcolor }, parser.argument()));
});
define("color", (parser) => {
  const mathcolor = colourOf(parser.rawArgument());
  return atom("ordinary", math("mstyle", { mathcolor }, ...rowNodes(parser.row())));
});

// ---- operators and classes

const named = (parser, limits) => {
  const text =
    parser.rawArgument().replace(/\\[,;:! ]|~/g, "\u2009").replace(/\\(?:text|math)[a-z]+|[{}\\]/g, "").trim();
  if (!limits) return atom("function", math("mi", {}, text));
  return { ...atom("limit", math("mo", { movablelimits: "true", lspace: "0", rspace: "0" }, text)) };
};
define("operatorname", (parser) => named(parser, false));
define("operatorname* operatornamewithlimits", (parser) => named(parser, true));
define("mathop", (parser) => ({ ...atom("limit", parser.argument()), limits: true }));
const kClasses = { mathbin: "binary", mathrel: "relation", mathord: "ordinary", mathopen: "open", mathclose: "close",
  mathpunct: "punctuation", mathinner: "inner" };
define(Object.keys(kClasses).join(" "), (parser, name) => {
  const node = parser.argument();
  const gap = { mathbin: 2 / 9, mathrel: 5 / 18 }[name];
  if (!gap) return atom(kClasses[name], node);
  return atom("ordinary", math("mrow", {}, space(gap), node, space(gap)));
});
// What has a character of its own when it is negated; the rest is struck through.
const kNegations = new Map("∈∉ =≠ <≮ >≯ ≤≰ ≥≱ ∃∄ ⊂⊄ ⊆⊈ ≡≢ ∼≁ ≈≉ ∣∤ ∥∦ ⊃⊅ ⊇⊉ ≅≇ →↛".split(" ").map((pair) => [...pair]));
define("not", (parser) => {
  const negated = parser.within(() => parser.atom());
  const target = negated.node.localName === "mrow" ? negated.node.firstChild ?? negated.node : negated.node;
  target.textContent = kNegations.get(target.textContent) ?? target.textContent + "\u0338";
  return negated;
});
const modulo = (before, open, close) => (parser) => atom("ordinary",
  math("mrow", {}, space(before), ...(open ? [math("mo", { stretchy: "false", form: "prefix" }, "(")] : []),
    math("mi", {}, "mod"), space(1 / 3), parser.argument(),
    ...(close ? [math("mo", { stretchy: "false", form: "postfix" }, ")")] : [])));
define("pmod", modulo(1, true, true));
define("mod", modulo(1, false, false));
define("pod",
  (parser) => atom("ordinary",
    math("mrow", {}, space(1), math("mo", { stretchy: "false", form: "prefix" }, "("), parser.argument(),
      math("mo", { stretchy: "false", form: "postfix" }, ")"))));
define("varlimsup varliminf", (parser, name) => atom("limit", math(name === "varlimsup" ? "mover" : "munder", {},
  math("mo", {}, "lim"), math("mo", { stretchy: "true" }, "¯"))));

// Bras, kets and sets, as physics and braket have them.
const between = (open, close) => (parser) => atom("inner", fenced(open, close, parser.argument()));
define("bra Bra", between("⟨", "|"));
define("ket Ket", between("|", "⟩"));
define("braket Braket", (parser) => {
  const parts = parser.rawArgument().split("|").map((part) => rowNodes(parser.inner(part)));
  const nodes = parts.flatMap(
    (part, at) => (at ? [math("mo", { stretchy: "true", lspace: "0", rspace: "0" }, "|"), ...part] : part));
  return atom("inner", fenced("⟨", "⟩", ...nodes));
});
define("set Set", between("{", "}"));
define("abs", between("|", "|"));
define("norm", between("‖", "‖"));

// ---- boxes and phantoms

define("phantom", (parser) => atom("ordinary", math("mphantom", {}, parser.argument())));
define("hphantom",
  (parser) =>
    atom("ordinary", math("mpadded", { height: "0", depth: "0" }, math("mphantom", {}, parser.argument()))));
define("vphantom",
  (parser) => atom("ordinary", math("mpadded", { width: "0" }, math("mphantom", {}, parser.argument()))));
define("mathstrut strut",
  () => atom(
    "ordinary", math("mpadded", { width: "0" }, math("mphantom", {}, math("mo", { stretchy: "false" }, "(")))));
define("smash", (parser) => {
  parser.rawOption();
  return atom("ordinary", math("mpadded", { height: "0", depth: "0" }, parser.argument()));
});
define("mathrlap rlap", (parser) => atom("ordinary", math("mpadded", { width: "0" }, parser.argument())));
define("mathllap llap",
  (parser) => atom("ordinary", math("mpadded", { width: "0", lspace: "-1width" }, parser.argument())));
const classed = (className) => (parser) => atom("ordinary", math("mrow", { class: className }, parser.argument()));
define("boxed fbox", classed("tex-boxed"));
define("overline", classed("tex-overline"));
define("underline", classed("tex-underline"));
define("cancel", classed("tex-cancel"));
define("bcancel", classed("tex-bcancel"));
define("xcancel", classed("tex-cancel tex-bcancel"));
define("sout", classed("tex-sout"));

// ---- space

for (const [name, width] of kSpaces) commands.set(name, () => atom("space", space(width)));
const kLength = /^\s*(-?[\d.]+)\s*(em|ex|pt|px|mu|cm|mm|in)/;
const kEms = { em: 1, ex: .43, pt: .1, px: .0625, mu: 1 / 18, cm: 2.37, mm: .237, in: 6 };
const widthOf = (text) => {
  const match = kLength.exec(text);
  return match ? Math.max(-20, Math.min(20, match[1] * kEms[match[2]])) : 0;
};
define("hspace hspace* hskip mspace", (parser) => atom("space", space(widthOf(parser.rawArgument()))));
define("kern mkern mskip", (parser) => {
  const match = kLength.exec(parser.text.slice(parser.at, parser.at + 30));
  if (match) parser.at += match[0].length;
  return atom("space", space(match ? widthOf(match[0]) : 0));
});

// ---- text, chemistry, tables, and what has no meaning here

define("text textrm textnormal mbox hbox textbf textit textsf texttt emph textup", textAtom);
define("ce cf", (parser) => chemistry(parser, parser.rawArgument()));
define("begin", (parser) => {
  const name = parser.rawArgument();
  return atom("inner", environment(parser, name));
});
const nothing = () => atom("space", math("mrow"));
define(`nonumber notag displaylimits allowbreak nobreak relax hfill hfil noindent protect hline bgroup egroup
begingroup endgroup normalsize small footnotesize scriptsize tiny large Large LARGE huge Huge centering`, nothing);
define("label", (parser) => { parser.rawArgument(); return nothing(); });
define("ref eqref cite", (parser) => atom("ordinary", math("mtext", {}, `(${parser.rawArgument()})`)));
define("tag tag*", (parser, name) => {
  const text = parser.rawArgument();
  return atom("ordinary", math("mrow", {}, space(2), math("mtext", {}, name === "tag" ? `(${text})` : text)));
});
define("ensuremath", (parser) => atom("ordinary", parser.argument()));
define("operatorfont", nothing);
define("bmod", () => atom("ordinary", math("mo", { lspace: em(2 / 9), rspace: em(2 / 9) }, "mod")));
define("middle", (parser) => atom("relation", math("mo", { stretchy: "true" }, parser.delimiter())));

