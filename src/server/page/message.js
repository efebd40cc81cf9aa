// How one message looks: text, files, folded thinking, tool calls, what went wrong, what can be done with it.
import { chip, withFiles } from "/page/attachments.js";
import { element, iconButton, number } from "/page/dom.js";
import { codeNode, renderInto } from "/page/markdown/render.js";

const kTitles = { user: "You", assistant: "Answer", tool: "Tool result" };
const kFinishNotes = {
  length: "The answer was cut off at its token limit.",
  stopped: "You stopped this answer.",
  interrupted: "This answer was interrupted when its page was left.",
  shutdown: "The server was shut down during this answer.",
};
const kAdvice = {
  context_length_exceeded: "Shorten an earlier message by editing it, leave out a file, or start a new chat.",
  unreachable: "Nothing is lost: Retry asks again once the server is back.",
};

const seconds = (value) => value.toFixed(value < 1 ? 2 : value < 10 ? 1 : 0) + " s";

export function facts(message) {
  const { usage, firstSeconds, rate } = message;
  const parts = [];
  if (rate) parts.push(`${rate.toFixed(1)} tok/s`);
  if (usage?.completion_tokens) parts.push(`${number.format(usage.completion_tokens)} tokens`);
  if (firstSeconds) parts.push(`first after ${seconds(firstSeconds)}`);
  const cached = usage?.prompt_tokens_details?.cached_tokens;
  if (cached)
    parts.push(`${number.format(cached)} of ${number.format(usage.prompt_tokens)} prompt tokens from the cache`);
  return parts.join(" · ");
}

const isSilent = (message) => !message.content && !message.toolCalls?.length;

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

function toolCallNode(call, wantsResults) {
  const node = element("div", { className: "tool-call" }, element("h3", { textContent: `Calls ${call.name || "…"}` }),
    codeNode(pretty(call.arguments), "json"));
  if (!wantsResults) return node;
  const id = "result-" + call.id;
  node.append(element("label", { htmlFor: id, textContent: `Result of ${call.name}` }),
    element("textarea", { id, rows: 2, className: "tool-answer" }));
  return node;
}

function wordButton(text, action, className = "") {
  const node = element("button", { type: "button", textContent: text, className });
  node.dataset.action = action;
  return node;
}

function copyButton(label, copied) {
  const node = iconButton("copy", "copy", label);
  node.classList.add("copy");
  node.copied = copied;
  return node;
}

function thinkingTitle(message, live) {
  if (live && isSilent(message)) return "Thinking…";
  return message.thoughtSeconds ? `Thought for ${seconds(message.thoughtSeconds)}` : "Thoughts";
}

// Where a message stands among its siblings, and the way to the others.
function branchNode(at, of) {
  const [before, after] =
    [iconButton("left", "previous", "Previous version"), iconButton("right", "next", "Next version")];
  before.disabled = at === 0;
  after.disabled = at === of - 1;
  const count = element("span", { className: "branch-count", textContent: `${at + 1}/${of}` });
  count.setAttribute("aria-label", `Version ${at + 1} of ${of}`);
  const node = element("span", { className: "branches" }, before, count, after);
  node.setAttribute("role", "group");
  node.setAttribute("aria-label", "Versions");
  return node;
}

export class MessageView {
  constructor(message) {
    this.message = message;
    this.node = element(
      "article", { className: "message " + message.role }, element("h2", { textContent: kTitles[message.role] }));
    this.node.dataset.id = message.id;
    this.body = element("div", { className: "body", dir: "auto" });
    this.extra = element("div", { className: "extra" });
    this.actions = element("div", { className: "actions" });
    this.stamp = "";
    if (message.role === "assistant") this.makeAnswer();
    if (message.role === "tool") this.node.classList.add("tool-result");
    this.node.append(this.body, this.extra, this.actions);
  }

  makeAnswer() {
    this.body.classList.add("prose");
    this.title = element("summary");
    this.thoughts = element("div", { className: "prose" });
    this.thinking = element("details", { className: "thinking", hidden: true }, this.title, this.thoughts);
    this.thinking.ontoggle = () => renderInto(this.thoughts, this.message.reasoning);
    this.node.append(this.thinking);
  }

  // state: { last, live, at, of }: whether it ends the path, is being written; its place among siblings.
  // A message that is not being written is drawn again only when something about it has changed.
  update(state) {
    const stamp = state.live ? "" : JSON.stringify([this.message.version, state]);
    if (stamp && stamp === this.stamp) return this;
    this.stamp = stamp;
    this.state = state;
    if (this.message.role === "assistant") this.updateAnswer();
    else if (this.message.role === "tool")
      this.body.replaceChildren(element("pre", { textContent: this.message.content }));
    else if (!this.form) this.updateQuestion();
    this.actions.hidden = Boolean(this.form);
    if (!state.live) this.actions.replaceChildren(...this.actionNodes());
    return this;
  }

  updateQuestion() {
    const { content, attachments = [] } = this.message;
    this.body.textContent = content;
    this.body.hidden = !content;
    this.extra.replaceChildren(...attachments.map((attachment, at) => chip(attachment, at, false)));
  }

  updateAnswer() {
    const { message, state: { live } } = this;
    this.node.setAttribute("aria-busy", String(live));
    this.thinking.hidden = !message.reasoning;
    if (message.reasoning) {
      this.title.textContent = thinkingTitle(message, live);
      this.title.classList.toggle("busy", this.title.textContent === "Thinking…");
      // What is folded need not be laid out; it is filled in when it is opened.
      if (this.thinking.open) renderInto(this.thoughts, message.reasoning);
    }
    if (!this.form) renderInto(this.body, message.content);
    // While text flows nothing else changes; and what is typed into a result is not thrown away.
    const extra = JSON.stringify([
      live, isSilent(message) && !message.reasoning, message.toolCalls, message.finish, message.error,
      message.waiting, this.wantsResults(), message.writer
    ]);
    if (extra !== this.shownExtra) this.extra.replaceChildren(...this.extraNodes());
    this.shownExtra = extra;
  }

  wantsResults() {
    const { message, state } = this;
    return Boolean(
      state.last && !state.live && message.toolCalls?.length && !message.error && message.finish !== "writing");
  }

  extraNodes() {
    const { message, state: { live } } = this;
    const nodes = (message.toolCalls ?? []).map((call) => toolCallNode(call, this.wantsResults()));
    const note = (text, className = "note") => nodes.push(element("p", { className, textContent: text }));
    if (this.wantsResults()) nodes.push(wordButton("Send results", "send-results", "primary"));
    if (message.waiting) note(message.waiting, "waiting busy");
    else if (live && isSilent(message) && !message.reasoning) note("Reading…", "waiting busy");
    if (!live && message.finish === "writing") note("Being written in another tab…", "waiting busy");
    if (!live && kFinishNotes[message.finish]) note(kFinishNotes[message.finish]);
    if (message.edited) note("Edited by you.");
    if (message.error) {
      note(message.error, "error");
      nodes.at(-1).setAttribute("role", "alert");
      const advice = kAdvice[message.errorCode] ?? (message.errorStatus ? "" : kAdvice.unreachable);
      if (advice) note(advice);
    }
    return nodes;
  }

  actionNodes() {
    const { message, state: { at, of } } = this;
    if (message.role === "tool") return [];
    const nodes = of > 1 ? [branchNode(at, of)] : [];
    const answer = message.role === "assistant";
    if (message.content)
      nodes.push(copyButton(
        answer ? "Copy the answer" : "Copy the message", () => withFiles(message.content, message.attachments)));
    nodes.push(iconButton("edit", "edit", answer ? "Edit the answer" : "Edit the message"));
    if (answer) nodes.push(iconButton("retry", "retry", "Answer again"));
    if (answer) nodes.push(element("span", { className: "facts", textContent: facts(message) }));
    return nodes;
  }

  // ---- editing in place

  // draft: { text, attachments } as they were left; changed() with each letter.
  edit(draft, changed) {
    const field = element("textarea", { className: "edit-text", rows: 1, value: draft.text, dir: "auto" });
    field.setAttribute("aria-label", this.message.role === "user" ? "Edit the message" : "Edit the answer");
    const files = element("div", { className: "chips" });
    const answer = this.message.role === "assistant";
    this.form = element("form", { className: "edit" }, field, files,
      element("p", { className: "note", textContent: answer ? "The answer as it was stays as another version." :
        "The message as it was, and all that followed, stays as another version." }),
      element("div", { className: "row" }, wordButton("Cancel", "cancel-edit"),
        element("button", { type: "submit", className: "primary", textContent: answer ? "Save" : "Send" })));
    this.draft = { text: draft.text, attachments: [...draft.attachments] };
    const fit = () => { field.style.height = "auto"; field.style.height = `${field.scrollHeight + 2}px`; };
    const showFiles = () => files.replaceChildren(...this.draft.attachments.map((file, at) => chip(file, at, true)));
    field.addEventListener("input", () => { this.draft.text = field.value; fit(); changed(this.draft); });
    files.addEventListener("click", ({ target }) => {
      const button = target.closest("[data-action=remove-file]");
      if (!button) return;
      this.draft.attachments.splice(Number(button.dataset.at), 1);
      showFiles();
      changed(this.draft);
    });
    showFiles();
    this.body.hidden = this.extra.hidden = this.actions.hidden = true;
    this.node.classList.add("editing");
    this.node.append(this.form);
    fit();
    field.focus();
  }

  endEdit() {
    this.form?.remove();
    this.form = null;
    this.node.classList.remove("editing");
    this.body.hidden = this.extra.hidden = false;
    this.stamp = "";
    this.update(this.state);
    this.actions.querySelector("[data-action=edit]")?.focus();
  }
}
