// Markdown to nodes, with createElement and textContent alone: whatever a model writes is text, never markup of ours.
// The part models use: headings, paragraphs, lists, quotes, tables, rules, code, emphasis, links. Other things stay as
// they were written.
import { highlight } from "/page/highlight.js";

export function element(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

// ---- within a line

const kDelimiters = [["**", "strong"], ["__", "strong"], ["~~", "s"], ["*", "em"], ["_", "em"]];
const kPlain = /^[^\\`*_~[!<\nh]+/;

function safeLink(target) {
  return /^(https?:|mailto:)/i.test(target) ? target : null;
}

function link(target, children) {
  const address = safeLink(target);
  if (!address) return element("span", {}, ...children);
  return element("a", { href: address, rel: "noopener noreferrer", target: "_blank" }, ...children);
}

// The end of what a delimiter at the start of text opens, or -1: closed, and not right after a space.
function closing(text, mark) {
  for (let at = text.indexOf(mark, mark.length + 1); at >= 0; at = text.indexOf(mark, at + 1)) {
    if (/\s/.test(text[at - 1])) continue;
    if (text[at + mark.length] === mark[0] || (mark.length === 1 && text[at - 1] === mark)) continue;
    if (mark[0] === "_" && /\w/.test(text[at + mark.length] ?? "")) continue;
    return at;
  }
  return -1;
}

// hopeless: marks that nothing closes from here on, so that they are looked for once and not at each of a thousand.
function takeDelimited(text, before, depth, hopeless) {
  for (const [mark, name] of kDelimiters) {
    if (!text.startsWith(mark) || hopeless.has(mark) || (mark[0] === "_" && /\w/.test(before))) continue;
    if (/\s/.test(text[mark.length] ?? " ")) continue;
    const end = closing(text, mark);
    if (end >= 0) return [element(name, {}, ...inline(text.slice(mark.length, end), depth + 1)), end + mark.length];
    hopeless.add(mark);
  }
  return null;
}

function takeCode(text, hopeless) {
  const mark = /^`+/.exec(text)[0];
  for (let at = hopeless.has(mark) ? -1 : text.indexOf(mark, mark.length); at >= 0;) {
    const run = /^`+/.exec(text.slice(at))[0].length;
    if (run === mark.length) {
      const code = text.slice(mark.length, at).replace(/^ (.*) $/s, "$1");
      return [element("code", { textContent: code }), at + run];
    }
    at = text.indexOf(mark, at + run);
  }
  hopeless.add(mark);
  return [mark, mark.length];
}

function takeLink(text, depth) {
  const match = /^!?\[((?:[^[\]\\]|\\.)*)\]\(\s*<?([^\s<>()]*(?:\([^\s()]*\)[^\s<>()]*)?)>?(?:\s+"[^"]*")?\s*\)/.exec(text);
  return match && [link(match[2], inline(match[1] || match[2], depth + 1)), match[0].length];
}

function takeAddress(text, before) {
  const match = /^<(https?:[^\s<>]+|mailto:[^\s<>]+)>/.exec(text);
  if (match) return [link(match[1], [match[1]]), match[0].length];
  const bare = /\w/.test(before) ? null : /^https?:\/\/[^\s<>"'`)\]]*[^\s<>"'`)\].,;:!?*_]/.exec(text);
  return bare && [link(bare[0], [bare[0]]), bare[0].length];
}

function inline(text, depth = 0) {
  if (depth > 8) return [text];
  const nodes = [];
  const hopeless = new Set();
  let plain = "";
  let before = "";
  while (text) {
    let taken = null;
    const run = kPlain.exec(text);
    if (!run) {
      if (text[0] === "\\" && /[!-/:-@[-`{-~]/.test(text[1] ?? "")) taken = [text[1], 2];
      else if (text[0] === "\n") taken = [/ {2}$/.test(plain) ? element("br") : "\n", 1];
      else if (text[0] === "`") taken = takeCode(text, hopeless);
      else if (text[0] === "[" || text.startsWith("![")) taken = takeLink(text, depth);
      else if (text[0] === "<" || text[0] === "h") taken = takeAddress(text, before);
      else taken = takeDelimited(text, before, depth, hopeless);
    }
    const length = run ? run[0].length : taken?.[1] ?? 1;
    if (taken && typeof taken[0] !== "string") {
      if (plain) nodes.push(plain);
      plain = "";
      nodes.push(taken[0]);
    } else {
      plain += taken ? taken[0] : text.slice(0, length);
    }
    before = text[length - 1];
    text = text.slice(length);
  }
  if (plain) nodes.push(plain);
  return nodes;
}

// ---- blocks

const kFence = /^( {0,3})(`{3,}|~{3,})\s*([^\s`{]*)[^`]*$/;
const kItem = /^( *)([-*+]|\d{1,9}[.)])(?: +|$)/;
const kRule = /^ {0,3}([-*_])( *\1){2,} *$/;
const kHeading = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const kTableRule = /^ *\|?( *:?-+:? *\|)+( *:?-+:? *)?\|? *$/;
const startsBlock = (line) => kFence.test(line) || kRule.test(line) || kHeading.test(line) || /^ {0,3}>/.test(line);

const indentOf = (line) => /^ */.exec(line)[0].length;

// [kind, lines, first line after it] for the block that starts at `at`.
function takeBlock(lines, at) {
  const fence = kFence.exec(lines[at]);
  if (fence) {
    let end = at + 1;
    const isEnd = (line) => /^ {0,3}(`{3,}|~{3,}) *$/.test(line) && line.trim().startsWith(fence[2]);
    while (end < lines.length && !isEnd(lines[end])) ++end;
    return ["code", lines.slice(at, end), Math.min(end + 1, lines.length)];
  }
  if (kHeading.test(lines[at])) return ["heading", [lines[at]], at + 1];
  if (kRule.test(lines[at])) return ["rule", [lines[at]], at + 1];
  if (lines[at].includes("|") && kTableRule.test(lines[at + 1] ?? "")) {
    let end = at + 2;
    while (end < lines.length && lines[end].includes("|")) ++end;
    return ["table", lines.slice(at, end), end];
  }
  if (/^ {0,3}>/.test(lines[at])) {
    let end = at + 1;
    while (end < lines.length && /^ {0,3}>/.test(lines[end])) ++end;
    return ["quote", lines.slice(at, end), end];
  }
  if (kItem.test(lines[at])) return ["list", ...takeList(lines, at)];
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !startsBlock(lines[end]) && !kItem.test(lines[end])) ++end;
  return ["paragraph", lines.slice(at, end), end];
}

// A list goes on with items, deeper lines, and blank lines followed by either.
function takeList(lines, at) {
  const indent = indentOf(lines[at]);
  const ordered = /^ *\d/.test(lines[at]);
  let end = at + 1;
  for (let next = end; next < lines.length; ++next) {
    if (!lines[next].trim()) continue;
    const item = kItem.exec(lines[next]);
    const same = item && item[1].length <= indent + 1 && /^\d/.test(item[2]) === ordered && !kRule.test(lines[next]);
    const lazy = next === end && lines[next - 1].trim() && !item && !startsBlock(lines[next]);
    if (!same && !lazy && indentOf(lines[next]) <= indent) break;
    end = next + 1;
  }
  return [lines.slice(at, end), end];
}

function listNode(lines, depth) {
  const first = kItem.exec(lines[0]);
  const ordered = /^\d/.test(first[2]);
  const list = element(ordered ? "ol" : "ul");
  if (ordered) list.start = parseInt(first[2], 10);
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
  for (const { lines: inner } of items) {
    const blocks = blockNodes(inner, depth + 1);
    // An item of one paragraph is a line, not a paragraph.
    const tight = blocks[0]?.tagName === "P" && !inner.some((line, at) => at > 0 && at < inner.length - 1 && !line.trim());
    list.append(element("li", {}, ...(tight ? [...blocks[0].childNodes, ...blocks.slice(1)] : blocks)));
  }
  return list;
}

const cellsOf = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, "|"));

function tableNode(lines) {
  const row = (line, name) => element("tr", {}, ...cellsOf(line).map((cell) => element(name, {}, ...inline(cell))));
  return element("div", { className: "table" }, element("table", {},
    element("thead", {}, row(lines[0], "th")), element("tbody", {}, ...lines.slice(2).map((line) => row(line, "td")))));
}

export function codeNode(code, language) {
  const copy = element("button", { type: "button", className: "copy", textContent: "Copy" });
  copy.setAttribute("aria-label", language ? `Copy ${language} code` : "Copy code");
  copy.copied = () => code;
  return element("div", { className: "code" },
    element("div", { className: "code-head" }, element("span", { textContent: language || "text" }), copy),
    element("pre", {}, element("code", {}, ...highlight(code, language))));
}

function blockNode(kind, lines, depth) {
  switch (kind) {
    case "code": {
      const [, indent, , language] = kFence.exec(lines[0]);
      const cut = (line) => line.slice(Math.min(indentOf(line), indent.length));
      return codeNode(lines.slice(1).map(cut).join("\n"), language);
    }
    case "heading": {
      const [, marks, text] = kHeading.exec(lines[0]);
      // The page's own headings are h1 and h2.
      return element("h" + Math.min(marks.length + 2, 6), {}, ...inline(text));
    }
    case "rule": return element("hr");
    case "table": return tableNode(lines);
    case "quote": return element("blockquote", {}, ...blockNodes(lines.map((line) => line.replace(/^ {0,3}> ?/, "")), depth + 1));
    case "list": return listNode(lines, depth);
    default: return element("p", {}, ...inline(lines.join("\n").trim()));
  }
}

function blocksOf(lines) {
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (!lines[at].trim()) { ++at; continue; }
    const [kind, inner, next] = takeBlock(lines, at);
    blocks.push({ kind, lines: inner, source: kind + "\n" + inner.join("\n") });
    at = next;
  }
  return blocks;
}

function blockNodes(lines, depth) {
  if (depth > 12) return [element("p", { textContent: lines.join("\n") })];
  return blocksOf(lines).map(({ kind, lines: inner }) => blockNode(kind, inner, depth));
}

// Shows text in a node and, called again with more of it, replaces only the blocks that changed: an answer of any
// length costs what its last paragraph costs, and what was selected stays selected.
export function renderInto(node, text) {
  const blocks = blocksOf(text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n"));
  const shown = node.shownBlocks ?? [];
  let same = 0;
  while (same < shown.length && same < blocks.length && shown[same] === blocks[same].source) ++same;
  while (node.childNodes.length > same) node.lastChild.remove();
  for (const { kind, lines } of blocks.slice(same)) node.append(blockNode(kind, lines, 0));
  node.shownBlocks = blocks.map((block) => block.source);
}
