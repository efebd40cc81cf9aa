// Run inside the page by the tests: contrast of all text to be seen, whether focus can be seen, words that are
// broken.

const rgba = (colour) => {
  const parts = colour.match(/[\d.]+/g).map(Number);
  return [parts[0], parts[1], parts[2], parts[3] ?? 1];
};
const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3]));

// What is painted behind an element: its own ground and its parents', down to the first that is opaque.
function groundOf(node) {
  const layers = [];
  for (let at = node; at; at = at.parentElement) {
    layers.push(rgba(getComputedStyle(at).backgroundColor));
    if (layers.at(-1)[3] === 1 || at.localName === "dialog") break;
  }
  return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
}

function luminance([red, green, blue]) {
  const linear = [red, green, blue].map((value) => value / 255).map((value) =>
    (value <= .03928 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4));
  return .2126 * linear[0] + .7152 * linear[1] + .0722 * linear[2];
}

function contrast(one, other) {
  const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (light + .05) / (dark + .05);
}

function check(problems, node, colour, least, what) {
  const ground = groundOf(node);
  const ratio = contrast(over(rgba(colour), ground), ground);
  if (ratio < least)
    problems.push(`${what}: ${colour} on ${ground.map(Math.round)} has ${ratio.toFixed(2)}, not ${least}`);
}

// Texts that are seen: of the open dialog, or of the page.
function* seenTexts() {
  const walker =
    document.createTreeWalker(document.querySelector("dialog[open]") ?? document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const node = text.parentElement;
    if (text.textContent.trim() && node.checkVisibility({ visibilityProperty: true }) &&
      !node.closest("noscript, option, [inert]"))
      yield text;
  }
}

function audit() {
  const problems = [];
  let seen = 0;
  const dialog = document.querySelector("dialog[open]");
  for (const text of seenTexts()) {
    const node = text.parentElement;
    // A button that cannot be pressed is meant to stand back.
    if (node.closest(":disabled")) continue;
    ++seen;
    // Every busy text breathes; its resting colour is what counts.
    check(problems, node, getComputedStyle(node).color, 4.5, `"${text.textContent.trim().slice(0, 30)}"`);
  }
  if (seen < 5) problems.push(`only ${seen} texts were seen`);
  for (const field of (dialog ?? document).querySelectorAll("input, textarea, select, #composer")) {
    if (!field.checkVisibility({ visibilityProperty: true }) || field.id === "input" ||
      field.closest("[inert], .task, .edit"))
      continue;
    check(problems, field.parentElement, getComputedStyle(field).borderTopColor, 3, `edge of ${field.id}`);
    check(problems, field, getComputedStyle(field, "::placeholder").color, 4.5, `placeholder of ${field.id}`);
  }
  return problems;
}

// Words that stand on more than one line, or are cut off where nothing says so. Hyphens and slashes are places to
// break.
function brokenWords() {
  const problems = [];
  const range = document.createRange();
  for (const text of seenTexts()) {
    const node = text.parentElement;
    if (node.closest("pre, math, .visually-hidden, .message > h2")) continue;
    for (const match of text.textContent.matchAll(/[^\s\-–/]+/g)) {
      range.setStart(text, match.index);
      range.setEnd(text, match.index + match[0].length);
      const lines = new Set(
        [...range.getClientRects()].filter(({ width }) => width > 0).map(({ bottom }) => Math.round(bottom)));
      if (lines.size > 1) problems.push(`"${match[0]}" stands on ${lines.size} lines`);
      const { left, right } = range.getBoundingClientRect();
      const scrolls = node.closest(".table, .math-block, .code, .chat-title, .snippet, #title, .chip-name");
      if (!scrolls && (left < -1 || right > innerWidth + 1))
        problems.push(`"${match[0]}" is cut off at ${Math.round(right)}`);
    }
  }
  return problems;
}

function showsFocus(node) {
  if (node.id === "input") node = document.querySelector("#composer");
  if (node.classList.contains("edit-text")) node = node.closest(".edit");
  const style = getComputedStyle(node);
  const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  return seen ||
    ((node.id === "composer" || node.classList.contains("edit")) &&
      style.borderTopColor === getComputedStyle(document.querySelector("#send")).backgroundColor);
}
