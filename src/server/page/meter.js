// How much of the context the shown path takes.
import { postJson } from "/page/api.js";
import { sentMessages } from "/page/answer.js";
import { byId, number } from "/page/dom.js";

// The server counts with each answer. What has been said since, or an answer that ended before anything was
// counted, is counted by asking.
export class Meter {
  constructor() {
    this.limit = 0;
    this.asked = 0;
    this.counted = { of: "", tokens: 0 };  // what was counted last
  }

  show(used) {
    const meter = byId("context");
    meter.hidden = !this.limit;
    const text = `${number.format(used)} of ${number.format(this.limit)} tokens`;
    meter.setAttribute("aria-valuemax", this.limit);
    meter.setAttribute("aria-valuenow", Math.min(used, this.limit));
    meter.setAttribute("aria-valuetext", text);
    byId("context-text").textContent = text;
    meter.classList.toggle("nearly-full", used > .9 * this.limit);
    byId("context-fill").style.width = `${Math.min(100, 100 * used / Math.max(1, this.limit))}%`;
  }

  // path: the shown messages; settings: what else goes with a request; running: an answer is being written, and
  // counted with.
  update(path, settings, running) {
    const at = path.findLastIndex((message) => message.usage);
    const { prompt_tokens: prompt = 0, completion_tokens: answer = 0 } = path[at]?.usage ?? {};
    this.show(prompt + answer);
    if (at < path.length - 1 && this.limit && !running) this.count(path, settings);
    else ++this.asked;
  }

  async count(path, settings) {
    const turn = ++this.asked;
    const messages = sentMessages(path, settings);
    if (!messages.some(({ role }) => role !== "system")) return;
    const of = JSON.stringify([path.map(({ id, version }) => id + version), settings]);
    if (of === this.counted.of) {
      this.show(this.counted.tokens);
      return;
    }
    const thinking =
      settings.thinking ? { chat_template_kwargs: { enable_thinking: settings.thinking === "on" } } : {};
    const tools = settings.tools ? { tools: JSON.parse(settings.tools) } : {};
    try {
      const { count } = await postJson("/tokenize", { messages, ...thinking, ...tools });
      if (turn !== this.asked || !Number.isInteger(count)) return;
      this.counted = { of, tokens: count };
      this.show(count);
    } catch { /* the last known number stays */ }
  }
}
