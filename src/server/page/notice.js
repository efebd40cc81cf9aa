// One line at the foot of the page about what has happened, with at most one thing to do about it.
import { byId, element } from "/page/dom.js";

let timer = 0;

export function hideNotice() {
  clearTimeout(timer);
  byId("notice").hidden = true;
}

// seconds: how long it stays; 0: until it is closed.
export function notice(text, { label = "", action = null, seconds = 8 } = {}) {
  const node = byId("notice");
  const button = (title, press) => {
    const made = element("button", { type: "button", textContent: title });
    made.addEventListener("click", () => { hideNotice(); press(); });
    return made;
  };
  node.replaceChildren(element("span", { textContent: text }), ...(label ? [button(label, action)] : []),
    ...(seconds ? [] : [button("Close", () => {})]));
  node.hidden = false;
  clearTimeout(timer);
  if (seconds) timer = setTimeout(hideNotice, 1000 * seconds);
}
