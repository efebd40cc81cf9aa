// Copying, also over plain HTTP from another machine, where a browser has no clipboard for pages.
import { announce, element, icon } from "/page/dom.js";

function copyBySelection(text) {
  const field = element("textarea", { value: text });
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  return copied;
}

export async function copyFrom(button) {
  let copied = true;
  try {
    await navigator.clipboard.writeText(button.copied());
  } catch {
    copied = copyBySelection(button.copied());
    button.focus();
  }
  const word = copied ? "Copied" : "Not copied";
  announce(word);
  button.dataset.state = word;
  button.replaceChildren(icon(copied ? "check" : "close"));
  setTimeout(() => {
    delete button.dataset.state;
    button.replaceChildren(icon("copy"));
  }, 1500);
}

// Formulae in a selection are copied as the TeX they came from, not as loose letters.
export function copyFormulae(event) {
  const selection = getSelection();
  if (!selection.rangeCount || selection.isCollapsed) return;
  const content = selection.getRangeAt(0).cloneContents();
  const formulae = content.querySelectorAll("math[alttext]");
  if (!formulae.length) return;
  for (const node of formulae) {
    const mark = node.getAttribute("display") === "block" ? "$$" : "$";
    node.replaceWith(mark + node.getAttribute("alttext") + mark);
  }
  const place = element("div", { className: "off-screen" }, content);
  document.body.append(place);  // line ends are known only of what is laid out
  event.clipboardData.setData("text/plain", place.innerText);
  place.remove();
  event.preventDefault();
}
