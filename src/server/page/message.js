// How one message looks: text, folded thinking, tool calls, what went wrong, what can be done with it.
import { codeNode, element, renderInto } from "/page/markdown.js";

const kTitles = { user: "You", assistant: "Answer", tool: "Tool result" };
const kFinishNotes = {
  length: "The answer was cut off at its token limit.",
  stopped: "You stopped this answer.",
  shutdown: "The server was shut down during this answer.",
};

const number = new Intl.NumberFormat("en-US");
const seconds = (value) => value.toFixed(value < 1 ? 2 : value < 10 ? 1 : 0) + " s";

export function facts(message) {
  const { usage, firstSeconds, rate } = message;
  const parts = [];
  if (rate) parts.push(`${rate.toFixed(1)} tok/s`);
  if (usage?.completion_tokens) parts.push(`${number.format(usage.completion_tokens)} tokens`);
  if (firstSeconds) parts.push(`first after ${seconds(firstSeconds)}`);
  const cached = usage?.prompt_tokens_details?.cached_tokens;
  if (cached) parts.push(`${number.format(cached)} of ${number.format(usage.prompt_tokens)} prompt tokens from the cache`);
  return parts.join(" · ");
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

function toolCallNode(call, message) {
  const node = element("div", { className: "tool-call" }, element("h3", { textContent: `Calls ${call.name || "…"}` }),
    codeNode(pretty(call.arguments), "json"));
  if (!message.wantsResults) return node;
  const id = "result-" + call.id;
  node.append(element("label", { htmlFor: id, textContent: `Result of ${call.name}` }),
    element("textarea", { id, rows: 2, className: "tool-answer" }));
  return node;
}

function button(text, action, label = text) {
  const node = element("button", { type: "button", textContent: text });
  node.dataset.action = action;
  if (label !== text) node.setAttribute("aria-label", label);
  return node;
}

function thinkingTitle(message, live) {
  if (live && !message.content && !message.toolCalls.length) return "Thinking…";
  return message.thoughtSeconds ? `Thought for ${seconds(message.thoughtSeconds)}` : "Thoughts";
}

export class MessageView {
  constructor(message) {
    this.message = message;
    this.node = element("article", { className: "message " + message.role },
      element("h2", { textContent: kTitles[message.role] }));
    this.body = element("div", { className: "body", dir: "auto" });
    this.extra = element("div");
    this.actions = element("div", { className: "actions" });
    if (message.role === "assistant") this.makeAnswer();
    this.node.append(this.body, this.extra, this.actions);
  }

  makeAnswer() {
    this.body.classList.add("prose");
    this.title = element("summary");
    this.thoughts = element("div", { className: "prose" });
    this.thinking = element("details", { className: "thinking", hidden: true }, this.title, this.thoughts);
    this.node.append(this.thinking);
  }

  // last: whether it ends the conversation; live: whether it is still being written.
  update({ last = false, live = false } = {}) {
    if (this.message.role === "assistant") this.updateAnswer(live);
    else if (this.message.role === "tool") this.updateToolResult();
    else this.body.textContent = this.message.content;
    if (!live) this.actions.replaceChildren(...this.actionNodes(last));
    return this;
  }

  updateAnswer(live) {
    const { message } = this;
    this.node.setAttribute("aria-busy", String(live));
    this.thinking.hidden = !message.reasoning;
    if (message.reasoning) {
      this.title.textContent = thinkingTitle(message, live);
      this.title.classList.toggle("busy", this.title.textContent === "Thinking…");
      // What is folded need not be laid out again and again; it is filled in when it is opened.
      if (this.thinking.open || !live) renderInto(this.thoughts, message.reasoning);
      this.thinking.ontoggle = () => renderInto(this.thoughts, message.reasoning);
    }
    renderInto(this.body, message.content);
    this.extra.replaceChildren(...this.extraNodes(live));
  }

  extraNodes(live) {
    const { message } = this;
    const nodes = message.toolCalls.map((call) => toolCallNode(call, message));
    if (message.wantsResults) nodes.push(button("Send results", "send-results"));
    if (live && !message.content && !message.reasoning && !nodes.length) {
      nodes.push(element("p", { className: "waiting busy", textContent: "Reading…" }));
    }
    if (kFinishNotes[message.finish]) nodes.push(element("p", { className: "note", textContent: kFinishNotes[message.finish] }));
    if (message.error) {
      const node = element("p", { className: "error", textContent: message.error });
      node.setAttribute("role", "alert");
      nodes.push(node);
    }
    return nodes;
  }

  updateToolResult() {
    this.node.classList.add("tool-result");
    this.body.replaceChildren(element("pre", { textContent: this.message.content }));
  }

  actionNodes(last) {
    const { message } = this;
    if (message.role === "user") return message.editable ? [button("Edit", "edit", "Edit your last message")] : [];
    if (message.role !== "assistant") return [];
    const nodes = [];
    if (message.content) {
      const copy = button("Copy", "copy", "Copy the answer");
      copy.className = "copy";
      copy.copied = () => message.content;
      nodes.push(copy);
    }
    if (last) nodes.push(button("Retry", "retry", "Answer again"));
    nodes.push(element("span", { className: "facts", textContent: facts(message) }));
    return nodes;
  }
}
