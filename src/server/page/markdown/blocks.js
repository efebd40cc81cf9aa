// The blocks of a Markdown text: where each begins and ends, and which kind it is.
import { takeFormulaLines } from "/page/math/find.js";

// A pattern reads a line once: no two repetitions beside each other take the same characters, or a line of a hundred
// thousand of them would be tried at every pair of places. What needs more than that is a function.
const kFence = /^( {0,3})(`{3,}|~{3,})(.*)$/s;
export const kItem = /^( *)([-*+]|\d{1,9}[.)])(?: +|$)/;
const kHeading = /^ {0,3}(#{1,6})\s+(.*)$/s;
export const kNote = /^ {0,3}\[\^([^\]\s^]{1,40})\]:\s?(.*)$/;
const kRule = /^ {0,3}([-*_])( *\1){2,} *$/;

// { indent, mark, language } of a line that opens a block of code, or null.
export function fenceOf(line) {
  const match = kFence.exec(line);
  if (!match || match[3].includes("`")) return null;
  return { indent: match[1].length, mark: match[2], language: /^[^\s{]*/.exec(match[3].trimStart())[0] };
}

// { level, text } of a heading, or null. Marks at its end belong to it only behind a space: C# keeps its own.
export function headingOf(line) {
  const match = kHeading.exec(line);
  return match && { level: match[1].length, text: match[2].trim().replace(/(^|\s)#+$/, "").trimEnd() };
}

// "|:--|--:|", also without the first or the last bar.
function isTableRule(line) {
  const cells = line.trim().split("|").map((cell) => cell.trim());
  if (!cells[0]) cells.shift();
  return cells.length > 1 && cells.every((cell, at) => /^:?-+:?$/.test(cell) || (!cell && at === cells.length - 1));
}

const isQuote = (line) => /^ {0,3}>/.test(line);
const startsBlock = (line) =>
  fenceOf(line) || kRule.test(line) || kHeading.test(line) || isQuote(line) || kNote.test(line);
export const indentOf = (line) => /^ */.exec(line)[0].length;

function takeCode(lines, at, mark) {
  let end = at + 1;
  const isEnd = (line) => /^ {0,3}(`{3,}|~{3,}) *$/.test(line) && line.trim().startsWith(mark);
  while (end < lines.length && !isEnd(lines[end])) ++end;
  return ["code", lines.slice(at, end), Math.min(end + 1, lines.length)];
}

const while_ = (lines, at, test) => {
  let end = at;
  while (end < lines.length && test(lines[end], end)) ++end;
  return end;
};

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
  return ["list", lines.slice(at, end), end];
}

// A note goes on with the lines of its paragraph, and with indented ones.
function takeNote(lines, at) {
  let end = at + 1;
  for (let next = end; next < lines.length; ++next) {
    if (!lines[next].trim()) continue;
    const lazy = next === end && lines[next - 1].trim() && !startsBlock(lines[next]) && !kItem.test(lines[next]);
    if (!lazy && indentOf(lines[next]) < 2) break;
    end = next + 1;
  }
  return ["note", lines.slice(at, end), end];
}

// [kind, lines, first line after it] for the block that starts at `at`.
function takeBlock(lines, at) {
  const line = lines[at];
  const fence = fenceOf(line);
  if (fence) return takeCode(lines, at, fence.mark);
  if (kHeading.test(line)) return ["heading", [line], at + 1];
  if (kRule.test(line)) return ["rule", [line], at + 1];
  if (line.includes("|") && isTableRule(lines[at + 1] ?? "")) {
    const end = while_(lines, at + 2, (next) => next.includes("|"));
    return ["table", lines.slice(at, end), end];
  }
  if (isQuote(line)) {
    const end = while_(lines, at + 1, isQuote);
    return ["quote", lines.slice(at, end), end];
  }
  if (kNote.test(line)) return takeNote(lines, at);
  const formula = takeFormulaLines(lines, at);
  if (formula) return ["formula", [formula.tex], formula.next];
  if (kItem.test(line)) return takeList(lines, at);
  const end = while_(lines, at + 1, (next, place) =>
    next.trim() && !startsBlock(next) && !kItem.test(next) && !takeFormulaLines(lines, place));
  return ["paragraph", lines.slice(at, end), end];
}

// [{ kind, lines, source, at }], at being the line where it begins.
export function blocksOf(lines) {
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (!lines[at].trim()) { ++at; continue; }
    const [kind, inner, next] = takeBlock(lines, at);
    blocks.push({ kind, lines: inner, source: kind + "\n" + inner.join("\n"), at });
    at = next;
  }
  return blocks;
}
