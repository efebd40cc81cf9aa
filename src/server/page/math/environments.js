// Tables of formulae: matrices, cases, aligned lines. How columns lie is said by classes, since the page's policy
// allows no styles in attributes and browsers no longer read MathML's own.
import { math, MathError, rowNodes } from "/page/math/nodes.js";

// [opening, closing]; columns; whether cells are displays; a class of the table
const kMatrices = {
  matrix: ["", ""],
  pmatrix: ["(", ")"],
  bmatrix: ["[", "]"],
  Bmatrix: ["{", "}"],
  vmatrix: ["|", "|"],
  Vmatrix: ["‖", "‖"],
  smallmatrix: ["", ""],
  psmallmatrix: ["(", ")"],
  bsmallmatrix: ["[", "]"]
};
const kAligned = "align aligned split alignat alignedat eqnarray flalign";
const kGathered = "gather gathered multline multlined equation displaymath math lines";

const kForms = new Map();
for (const [name, fences] of Object.entries(kMatrices)) {
  kForms.set(name, { fences, columns: "c", className: name.includes("small") ? "tex-small" : "" });
}
for (const name of kAligned.split(" ")) kForms.set(name, { columns: "rl", display: true, className: "tex-aligned" });
for (const name of kGathered.split(" ")) kForms.set(name, { columns: "c", display: true, className: "tex-gathered" });
kForms.get("eqnarray").columns = "rcl";
kForms.set("cases", { fences: ["{", ""], columns: "l", className: "tex-cases" });
kForms.set("dcases", { fences: ["{", ""], columns: "l", display: true, className: "tex-cases" });
kForms.set("rcases", { fences: ["", "}"], columns: "l", className: "tex-cases" });
kForms.set("array", { columns: "", className: "" });
kForms.set("darray", { columns: "", display: true, className: "" });
kForms.set("subarray", { columns: "", className: "tex-lines" });
kForms.set("substack", { columns: "c", className: "tex-lines" });

const kCells = 5000;

// Cells until what ends the table, which is left: rows of { cells, line } with whether a line is above.
function rowsOf(parser) {
  const rows = [];
  let count = 0;
  for (;;) {
    let line = false;
    while (parser.takeIf("\\hline") || parser.takeIf("\\hdashline")) line = true;
    const cells = [parser.row()];
    while (parser.takeIf("&")) {
      cells.push(parser.row());
      if (++count > kCells) throw new MathError(`a table of more than ${kCells} cells`);
    }
    rows.push({ cells, line });
    if (!parser.takeIf("\\\\") && !parser.takeIf("\\cr") && !parser.takeIf("\\newline")) break;
    parser.takeIf("*");
    if (/^\[\s*-?[\d.]+\s*[a-z]{2}\s*\]/.test(parser.text.slice(parser.at, parser.at + 20))) parser.rawOption();
    if (++count > kCells) throw new MathError(`a table of more than ${kCells} cells`);
  }
  // \\ after the last row begins none; a line there belongs below.
  const last = rows.at(-1);
  if (rows.length > 1 && last.cells.length === 1 && !last.cells[0].length) rows.pop();
  return { rows, lineBelow: last !== rows.at(-1) && last.line };
}

// "r|cl" -> [{ side: "r", line: false }, { side: "c", line: true }, ...]
function columnsOf(text) {
  const columns = [];
  let line = false;
  for (const letter of text.replace(/[@!>p]\{[^}]*\}/g, "")) {
    if (letter === "|" || letter === ":") line = true;
    else if (/[lcr]/.test(letter)) {
      columns.push({ side: letter, line });
      line = false;
    }
  }
  return columns;
}

const kSides = { l: "left", c: "center", r: "right" };

function cellNode(atoms, side, classes) {
  return math("mtd", { class: [`tex-${side}`, ...classes].join(" "), columnalign: kSides[side] }, ...rowNodes(atoms));
}

function tableNode({ rows, lineBelow }, form, columns) {
  const sideOf = (at) => columns[at]?.side ?? (columns.length ? columns[at % columns.length].side : "c");
  const nodes =
    rows.map(({ cells, line }, rowAt) => math("mtr", {}, ...cells.map((atoms, at) => cellNode(atoms, sideOf(at), [
      ...(line ? ["tex-line-above"] : []),
      ...(lineBelow && rowAt === rows.length - 1 ? ["tex-line-below"] : []),
      ...(columns[at]?.line ? ["tex-line-left"] : []),
      // Between pairs of an aligned line there is room, within a pair none.
      ...(form.className === "tex-aligned" && at > 1 && at % columns.length === 0 ? ["tex-next-pair"] : []),
    ]))));
  const attributes = form.display ? { displaystyle: "true" } : {};
  return math("mtable", { ...attributes, ...(form.className ? { class: form.className } : {}) }, ...nodes);
}

function fencedTable(table, fences) {
  if (!fences || (!fences[0] && !fences[1])) return table;
  const fence = (text, form) => (text ? [math("mo", { form, stretchy: "true" }, text)] : []);
  return math("mrow", {}, ...fence(fences[0], "prefix"), table, ...fence(fences[1], "postfix"));
}

// What stands between \begin{name} and \end{name}; of substack, between braces.
export function environment(parser, name) {
  const plain = name.trim().replace(/\*$/, "");
  const form = kForms.get(plain);
  if (!form) throw new MathError(`there is no environment ${name}`);
  const given = /array$/.test(plain) ? parser.rawArgument() : "";
  if (/^alignat|^alignedat/.test(plain)) parser.rawArgument();
  if (/^(aligned|gathered|alignedat)$/.test(plain)) parser.rawOption();
  const table = rowsOf(parser);
  if (plain !== "substack") {
    parser.expect("\\end");
    const end = parser.rawArgument().trim();
    if (end !== name.trim()) throw new MathError(`\\begin{${name}} ends with \\end{${end}}`);
  }
  const columns = columnsOf(given || form.columns);
  if (/^(equation|displaymath|math)$/.test(plain) && table.rows.length === 1 && table.rows[0].cells.length === 1) {
    return math("mrow", {}, ...rowNodes(table.rows[0].cells[0]));
  }
  return fencedTable(tableNode(table, form, columns), form.fences);
}

// A whole formula: one row, or the lines of one that has \\ or & without an environment.
export function wholeFormula(parser) {
  const table = rowsOf(parser);
  if (parser.peek()) throw new MathError(`${parser.peek()} is not expected`);
  const { rows } = table;
  if (rows.length === 1 && rows[0].cells.length === 1) return rowNodes(rows[0].cells[0]);
  const name = rows.some(({ cells }) => cells.length > 1) ? "aligned" : "gathered";
  return [tableNode(table, kForms.get(name), columnsOf(kForms.get(name).columns))];
}
