// Markdown to nodes, with createElement and textContent alone: whatever a model writes is text, never markup of
// ours. The part models use: headings, paragraphs, lists, tasks, quotes, tables, rules, code, footnotes, formulae,
// emphasis, links.
import { element, icon } from "/page/dom.js";
import { blocksOf, fenceOf, headingOf, indentOf, kItem, kNote } from "/page/markdown/blocks.js";
import { numberNotes } from "/page/markdown/footnotes.js";
import { Colours } from "/page/markdown/highlight.js";
import { inlineNodes } from "/page/markdown/inline.js";
import { formulaBlock } from "/page/math/find.js";

const kDeepest = 12;
const kAddedCells = 5000;  // in a table; a wide head above many short rows must not make the product of both
const kLongCell = 30;  // characters: a table that scrolls does not squeeze a sentence into a column of one word

// ---- code

// A block of code; node.grow(code) shows more of the same.
export function codeNode(code, language) {
  const copy = element("button", { type: "button", className: "copy", title: "Copy code" }, icon("copy"));
  copy.dataset.action = "copy";
  copy.setAttribute("aria-label", language ? `Copy ${language} code` : "Copy code");
  const shown = element("code");
  const colours = new Colours(shown, language);
  const node = element("div", { className: "code" },
    element("div", { className: "code-head" }, element("span", { textContent: language || "text" }), copy),
    element("pre", {}, shown));
  node.grow = (text) => {
    copy.copied = () => text;
    colours.show(text);
  };
  node.grow(code);
  return node;
}

function codeOf(lines) {
  const { indent, language } = fenceOf(lines[0]);
  const cut = (line) => line.slice(Math.min(indentOf(line), indent));
  return { code: lines.slice(1).map(cut).join("\n"), language };
}

// ---- lists

function itemsOf(lines) {
  const first = kItem.exec(lines[0]);
  const items = [];
  for (const line of lines) {
    const item = kItem.exec(line);
    if (item && item[1].length <= first[1].length + 1) {
      items.push({ cut: item[0].length || 2, lines: [line.slice(item[0].length)] });
    } else {
      const last = items[items.length - 1];
      last.lines.push(line.slice(Math.min(indentOf(line), last.cut)));
    }
  }
  return items.map((item) => item.lines);
}

function itemNode(lines, depth) {
  const task = /^\[([ xX])\](?= |$)/.exec(lines[0]);
  const inner = task ? [lines[0].slice(4), ...lines.slice(1)] : lines;
  const blocks = blockNodes(inner, depth + 1);
  // An item of one paragraph is a line, not a paragraph.
  const tight =
    blocks[0]?.tagName === "P" && !inner.some((line, at) => at > 0 && at < inner.length - 1 && !line.trim());
  const node = element("li", {}, ...(tight ? [...blocks[0].childNodes, ...blocks.slice(1)] : blocks));
  if (task) {
    const box = element("input", { type: "checkbox", checked: task[1] !== " ", disabled: true });
    box.setAttribute("aria-label", task[1] === " " ? "not done" : "done");
    node.className = "task";
    node.prepend(box);
  }
  return node;
}

function listNode(lines, depth) {
  const [, , mark] = kItem.exec(lines[0]);
  const list = element(/^\d/.test(mark) ? "ol" : "ul", {}, ...itemsOf(lines).map((item) => itemNode(item, depth)));
  if (list.tagName === "OL") list.start = parseInt(mark, 10);
  return list;
}

// ---- tables

const cellsOf = (line) =>
  line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, "|"));
const sideOf = (rule) => (/^:.*:$/.test(rule) ? "center" : rule.endsWith(":") ? "right" : "");

function tableNode(lines) {
  const sides = cellsOf(lines[1]).map(sideOf);
  const width = cellsOf(lines[0]).length;
  const cell = (name, text, at) => {
    const className = [sides[at], text.length > kLongCell ? "long" : ""].filter(Boolean).join(" ");
    return element(name, className ? { className } : {}, ...inlineNodes(text));
  };
  // A row has as many cells as the head.
  let left = kAddedCells;
  const row = (line, name) => {
    const cells = cellsOf(line).slice(0, width);
    while (cells.length < width && left-- > 0) cells.push("");
    return element("tr", {}, ...cells.map((text, at) => cell(name, text, at)));
  };
  return element("div", { className: "table" },
    element("table", {}, element("thead", {}, row(lines[0], "th")),
      element("tbody", {}, ...lines.slice(2).map((line) => row(line, "td")))));
}

// ---- blocks

function noteNode(lines, depth) {
  const [, label, first] = kNote.exec(lines[0]);
  const inner = [first, ...lines.slice(1).map((line) => line.slice(Math.min(4, indentOf(line))))];
  const node = element("div", { className: "note-place", hidden: true });
  node.note = { label: label.toLowerCase(), nodes: blockNodes(inner, depth + 1) };
  return node;
}

function blockNode(kind, lines, depth) {
  switch (kind) {
    case "code": {
      const { code, language } = codeOf(lines);
      return codeNode(code, language);
    }
    case "heading": {
      const { level, text } = headingOf(lines[0]);
      // The page's own headings are h1 and h2.
      return element("h" + Math.min(level + 2, 6), {}, ...inlineNodes(text));
    }
    case "rule": return element("hr");
    case "table": return tableNode(lines);
    case "quote":
      return element("blockquote", {}, ...blockNodes(lines.map((line) => line.replace(/^ {0,3}> ?/, "")), depth + 1));
    case "list": return listNode(lines, depth);
    case "formula": return formulaBlock(lines[0]);
    case "note": return noteNode(lines, depth);
    default: return element("p", {}, ...inlineNodes(lines.join("\n").trim()));
  }
}

function blockNodes(lines, depth) {
  if (depth > kDeepest) return [element("p", { textContent: lines.join("\n") })];
  return blocksOf(lines).map(({ kind, lines: inner }) => blockNode(kind, inner, depth));
}

// ---- a text that grows

const linesOf = (text) => text.split("\n").map((line) => line.replace(/\r$/, "").replace(/\t/g, "    "));

// What is shown in a node: settled blocks, which no further text can change, and open ones.
class Shown {
  constructor() { Object.assign(this, { text: "", settled: 0, offset: 0, open: [], nodes: [], notes: null }); }
}
const shownIn = new WeakMap();

// Settles all blocks before the last one whose first line is complete: where that begins is decided by whole lines
// alone.
function settle(shown, blocks, text) {
  const lines = text.slice(shown.offset).split("\n");
  const last = blocks.findLastIndex((block) => block.at < lines.length - 1);
  if (last <= 0) return blocks;
  for (let line = 0; line < blocks[last].at; ++line) shown.offset += lines[line].length + 1;
  shown.settled += last;
  return blocks.slice(last);
}

// Draws text in a node. Called again with more of it, it reads from the first block that may still change, and
// replaces only what did: an answer of any length costs what its last block costs, and what was selected stays
// selected.
function draw(node, text) {
  let shown = shownIn.get(node);
  if (!shown || !text.startsWith(shown.text)) {
    shown = new Shown();
    shownIn.set(node, shown);
    node.replaceChildren();
  }
  const blocks = blocksOf(linesOf(text.slice(shown.offset)));
  let same = 0;
  while (same < shown.open.length && same < blocks.length && shown.open[same].source === blocks[same].source) ++same;
  const place = shown.settled + same;
  const [old, next] = [shown.open[same], blocks[same]];
  let kept = place;
  if (old?.kind === "code" && next?.kind === "code" && old.lines[0] === next.lines[0]) {
    shown.nodes[place].grow(codeOf(next.lines).code);
    ++kept;
  }
  for (const gone of shown.nodes.splice(kept)) gone.remove();
  for (const { kind, lines } of blocks.slice(kept - shown.settled)) shown.nodes.push(blockNode(kind, lines, 0));
  for (const added of shown.nodes.slice(kept)) node.insertBefore(added, shown.notes);
  shown.notes = numberNotes(node, shown.nodes, shown.notes);
  shown.open = settle(shown, blocks, text);
  shown.text = text;
}

// Shows text in a node, all of it, again and again while it grows. A text that cannot be drawn is shown as it is, with
// the reason: one message must not take the chat away.
export function renderInto(node, text) {
  try {
    draw(node, text);
  } catch (problem) {
    shownIn.delete(node);
    const title = `Shown as plain text: ${problem.message}`;
    node.replaceChildren(element("p", { className: "plain-text", textContent: text, title }));
  }
}
