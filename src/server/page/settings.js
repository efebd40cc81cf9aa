// The settings dialog. Empty fields are not sent: then the server's defaults hold, which are the model's own.
import { kept, key } from "/page/api.js";

const kName = "fourfold.settings";
const kFields = ["system", "temperature", "max-tokens", "thinking", "theme", "tools"];
const byId = (id) => document.getElementById(id);

function read() {
  try { return { ...JSON.parse(kept.get(kName) ?? "{}") }; } catch { return {}; }
}
let values = read();

export const system = () => values.system ?? "";

// Fields of a chat completion.
export function requestFields() {
  const fields = {};
  if (values.temperature) fields.temperature = Number(values.temperature);
  if (values["max-tokens"]) fields.max_completion_tokens = Number(values["max-tokens"]);
  if (values.thinking) fields.chat_template_kwargs = { enable_thinking: values.thinking === "on" };
  if (values.tools) fields.tools = JSON.parse(values.tools);
  return fields;
}

function problemOf(next) {
  if (!next.tools) return "";
  try {
    if (Array.isArray(JSON.parse(next.tools))) return "";
  } catch (problem) { return `Tools: ${problem.message}`; }
  return "Tools: this is JSON, but not a list.";
}

function show(node, text) {
  node.textContent = text;
  node.hidden = !text;
}

let afterSave = null;

// wanted: why the key is asked for; then(): once it is saved.
export function openSettings(wanted = "", then = null) {
  afterSave = then;
  for (const field of kFields) byId(field).value = values[field] ?? "";
  byId("api-key").value = key.get();
  show(byId("key-wanted"), wanted);
  show(byId("settings-problem"), "");
  if (!byId("settings").open) byId("settings").showModal();
  byId(wanted ? "api-key" : "system").focus();
}

function save(event) {
  const next = Object.fromEntries(kFields.map((field) => [field, byId(field).value.trim()]));
  const problem = problemOf(next);
  show(byId("settings-problem"), problem);
  if (problem) {
    event.preventDefault();
    return;
  }
  values = next;
  kept.set(kName, JSON.stringify(values));
  key.set(byId("api-key").value.trim());
  document.dispatchEvent(new Event("themechange"));
  if (afterSave) setTimeout(afterSave);
  afterSave = null;
}

export function startSettings() {
  byId("open-settings").addEventListener("click", () => openSettings());
  byId("cancel-settings").addEventListener("click", () => byId("settings").close());
  byId("settings").querySelector("form").addEventListener("submit", save);
}
