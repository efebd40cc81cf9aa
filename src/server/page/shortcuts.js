// Keys, and the list of them. Single letters work where nothing is typed, and can be switched off.
import { byId, element } from "/page/dom.js";
import { pageSetting } from "/page/settings.js";

const isMac = /Mac|iPhone|iPad/.test(navigator.platform);
const kCommand = isMac ? "⌘" : "Ctrl";

// [keys as shown, what they do, test of the event, action]; those without a test are listed only.
const kTyped = [
  [["Enter"], "Send the message"],
  [["Shift", "Enter"], "New line"],
  [["↑"], "In an empty field: edit your last message"],
  [["Escape"], "Stop the answer, close what is open, end editing"],
];
const command = (key, shift = false) => (event) =>
  (event.ctrlKey || event.metaKey) && !event.altKey && event.shiftKey === shift && event.key.toLowerCase() === key;
const alt = (key) => (event) => event.altKey && !event.ctrlKey && !event.metaKey && event.key === key;
const kAnywhere = [
  [[kCommand, "Shift", "O"], "New chat", command("o", true), "newChat"],
  [[kCommand, "K"], "Search chats", command("k"), "search"],
  [[kCommand, "B"], "Show or hide the side bar", command("b"), "toggleSide"],
  [[kCommand, ","], "Settings", command(","), "settings"],
  [[kCommand, "/"], "This list", command("/"), "help"],
  [["Alt", "↑"], "Previous chat in the list", alt("ArrowUp"), "previousChat"],
  [["Alt", "↓"], "Next chat in the list", alt("ArrowDown"), "nextChat"],
];
const kSingle = [
  [["?"], "This list", "?", "help"],
  [["/"], "Go to the message field", "/", "focusInput"],
  [["n"], "New chat", "n", "newChat"],
  [["c"], "Copy the last answer", "c", "copyLast"],
  [["r"], "Answer again", "r", "retryLast"],
  [["e"], "Edit your last message", "e", "editLast"],
  [["["], "Show or hide the side bar", "[", "toggleSide"],
  [["g"], "Go to the end of the chat", "g", "toEnd"],
];

const isTyping = (target) => target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");

const keyNodes = (keys) => keys.flatMap((key, at) => [...(at ? [" + "] : []), element("kbd", { textContent: key })]);
const keyRow = ([keys, text]) =>
  element("div", {}, element("dt", {}, ...keyNodes(keys)), element("dd", { textContent: text }));
const section = (title, rows) =>
  [element("h3", { textContent: title }), element("dl", { className: "keys" }, ...rows.map(keyRow))];

export class Shortcuts {
  constructor(actions) {
    this.actions = { ...actions, help: () => this.open() };
    byId("shortcut-list").append(...section("While typing", kTyped), ...section("Everywhere", kAnywhere),
      ...section("Where nothing is typed", kSingle));
    byId("close-shortcuts").addEventListener("click", () => byId("shortcuts").close());
    addEventListener("keydown", (event) => this.pressed(event));
  }

  open() {
    if (document.querySelector("dialog[open]")) return;
    byId("shortcuts").showModal();
    byId("shortcuts").scrollTop = 0;
  }

  pressed(event) {
    if (event.isComposing || event.defaultPrevented) return;
    if (event.key === "Escape") {
      if (!document.querySelector("dialog[open]")) this.actions.escape();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    const found = kAnywhere.find(([, , test]) => test(event)) ?? this.single(event);
    if (!found) return;
    event.preventDefault();
    this.actions[found[3]]();
  }

  single(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) ||
      pageSetting("single-keys") === "off")
      return null;
    return kSingle.find(([, , key]) => event.key === key) ?? null;
  }
}
