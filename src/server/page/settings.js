// The settings dialog: settings of answers, for all chats or for the open one alone; and what belongs to this
// browser.
import { kept, key, postJson } from "/page/api.js";
import { byId, element, iconButton, show } from "/page/dom.js";
import { kAnswerFields, knownFields, kNumbers, problemOf } from "/page/fields.js";

const kName = "fourfold.settings";
const kPageFields = ["theme", "single-keys"];

// Read anew each time: another tab may have changed them.
function stored() {
  try { return { ...JSON.parse(kept.get(kName) ?? "{}") }; } catch { return {}; }
}

export const pageSetting = (id) => stored()[id] ?? "";

// What holds for a chat: its own settings if it has some, or everybody's.
export const settingsOf = (chat) => chat?.record.settings ?? knownFields(stored());

function savePage(changes) {
  kept.set(kName, JSON.stringify({ ...stored(), ...changes }));
  document.dispatchEvent(new Event("themechange"));
}

function numberRow({ id, title, min, max, step, hint, empty }) {
  const input = element(
    "input", { id, type: "number", min, max, step: "any", placeholder: empty, inputMode: "decimal" });
  input.dataset.step = step;
  input.setAttribute("aria-describedby", `${id}-hint`);
  const reset = iconButton("reset", "reset", `Reset ${title.toLowerCase()}`);
  reset.dataset.field = id;
  return element("div", { className: "setting" }, element("label", { htmlFor: id, textContent: title }),
    element("div", { className: "with-reset" }, input, reset),
    element("p", { className: "note", id: `${id}-hint`, textContent: hint }));
}

// Arrow keys go by the field's own step, which "any" does not do.
function stepNumber(event) {
  const { target, key: pressed } = event;
  if (!target.dataset.step || (pressed !== "ArrowUp" && pressed !== "ArrowDown")) return;
  event.preventDefault();
  const step = Number(target.dataset.step);
  const next = (Number(target.value) || 0) + (pressed === "ArrowUp" ? step : -step);
  target.value = String(Math.min(Number(target.max), Math.max(Number(target.min), Number(next.toFixed(6)))));
  showResets();
}

function showResets() {
  for (const button of byId("settings").querySelectorAll("[data-action=reset]")) {
    button.disabled = !byId(button.dataset.field).value;
  }
}

// Whether the model's template has a switch for thinking: a prompt with it on and one with it off differ.
let knowsThinking = null;
async function askAboutThinking() {
  if (knowsThinking !== null) return;
  const count = async (on) => JSON.stringify((await postJson("/tokenize", {
    messages: [{ role: "user", content: "?" }],
    chat_template_kwargs: { enable_thinking: on }
  })).tokens);
  try {
    const [on, off] = [await count(true), await count(false)];
    knowsThinking = on !== off;
  } catch { return; }  // a key may be missing: it is asked again next time
  byId("thinking").disabled = !knowsThinking;
  byId("thinking-note").hidden = knowsThinking;
}

export class Settings {
  // changed(): after a save; chat(): the open one; saveChat(settings or null): stores what is of this chat alone.
  constructor({ chat, saveChat, changed }) {
    Object.assign(this, { chat, saveChat, changed });
    byId("sampling").append(...kNumbers.map(numberRow));
    const dialog = byId("settings");
    dialog.addEventListener("keydown", stepNumber);
    dialog.addEventListener("input", showResets);
    dialog.addEventListener("click", ({ target }) => this.pressed(target.closest("button")));
    dialog.querySelector("form").addEventListener("submit", (event) => this.save(event));
    byId("scope").addEventListener("change", () => this.fill());
    byId("cancel-settings").addEventListener("click", () => dialog.close());
    addEventListener("storage", ({ key: name }) => {
      if (name === kName) document.dispatchEvent(new Event("themechange"));
    });
  }

  // wanted: why the key is asked for; then(): once it is saved.
  open(wanted = "", then = null) {
    this.then = then;
    const own = this.chat().record.settings;
    byId("scope").value = own ? "chat" : "all";
    this.fill();
    for (const id of kPageFields) byId(id).value = pageSetting(id);
    byId("api-key").value = key.get();
    show(byId("key-wanted"), wanted);
    show(byId("settings-problem"), "");
    if (!byId("settings").open) byId("settings").showModal();
    byId("settings").scrollTop = 0;
    byId(wanted ? "api-key" : "system").focus();
    askAboutThinking();
  }

  // The fields of the chosen scope; a chat without settings of its own begins with everybody's.
  fill() {
    const values = byId("scope").value === "chat" ? this.chat().record.settings ?? stored() : stored();
    this.before = Object.fromEntries(kAnswerFields.map((id) => [id, values[id] ?? ""]));
    for (const id of kAnswerFields) byId(id).value = this.before[id];
    showResets();
  }

  pressed(button) {
    if (button?.dataset.action === "reset") {
      byId(button.dataset.field).value = "";
      byId(button.dataset.field).focus();
    }
    if (button?.id === "all-default") for (const id of kAnswerFields) byId(id).value = "";
    if (button) showResets();
  }

  save(event) {
    // A stop string may be blanks.
    const typed = (id) => (id === "stop-strings" ? byId(id).value : byId(id).value.trim());
    const values = Object.fromEntries(kAnswerFields.map((id) => [id, typed(id)]));
    const problem = problemOf(values);
    show(byId("settings-problem"), problem);
    if (problem) {
      event.preventDefault();
      return;
    }
    const forChat = byId("scope").value === "chat";
    // Of everybody's settings only what was changed here is written: another tab may have changed the rest.
    const changes =
      forChat ? {} : Object.fromEntries(Object.entries(values).filter(([id, text]) => text !== this.before[id]));
    savePage({ ...changes, ...Object.fromEntries(kPageFields.map((id) => [id, byId(id).value])) });
    const own = forChat ? knownFields(values) : null;
    if (own || this.chat().record.settings) this.saveChat(own);
    key.set(byId("api-key").value.trim());
    this.changed();
    if (this.then) setTimeout(this.then);
    this.then = null;
  }
}
