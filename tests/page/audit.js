// Run inside the page by page_test.py: contrast of all text to be seen, and whether focus can be seen.

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
  if (ratio < least) problems.push(`${what}: ${colour} on ${ground.map(Math.round)} has ${ratio.toFixed(2)}, not ${least}`);
}

function audit() {
  const problems = [];
  let seen = 0;
  const dialog = document.querySelector("dialog[open]");
  const walker = document.createTreeWalker(dialog ?? document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const node = text.parentElement;
    if (!text.textContent.trim() || !node.checkVisibility() || node.closest("noscript, option")) continue;
    ++seen;
    // Every busy text breathes; its resting colour is what counts.
    check(problems, node, getComputedStyle(node).color, 4.5, `"${text.textContent.trim().slice(0, 30)}"`);
  }
  if (seen < 5) problems.push(`only ${seen} texts were seen`);
  for (const field of (dialog ?? document).querySelectorAll("input, textarea, select, #composer")) {
    if (!field.checkVisibility() || field.id === "input") continue;
    check(problems, field.parentElement, getComputedStyle(field).borderTopColor, 3, `edge of ${field.id}`);
    check(problems, field, getComputedStyle(field, "::placeholder").color, 4.5, `placeholder of ${field.id}`);
  }
  return problems;
}

function showsFocus(node) {
  if (node.id === "input") node = document.querySelector("#composer");
  const style = getComputedStyle(node);
  const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  return seen || (node.id === "composer" && style.borderTopColor === getComputedStyle(document.querySelector("#send")).backgroundColor);
}
