// A chat that is open in this page: its tree, its running answer, and how both get into the store.
import { fillAnswer, requestBody } from "/page/answer.js";
import { announce, newId } from "/page/dom.js";
import { settingsOf } from "/page/settings.js";
import { ChatGone } from "/page/store.js";
import { Tree } from "/page/tree.js";

const kSaveEvery = 1500;  // ms between saves of an answer that is being written; the first comes sooner
const kSaveFirst = 300;

// The first words of a chat, on one line.
export function titleOf(message) {
  const words = message?.content || message?.attachments?.[0]?.name || "";
  const text = words.replace(/```[^]*?(```|$)/g, " ").replace(/[#*`>_~]+/g, " ").replace(/\s+/g, " ").trim();
  if (!text) return "New chat";
  return text.length <= 60 ? text : text.slice(0, 60).replace(/\s+\S*$/, "") + "…";
}

export class Session {
  // record: null for a chat that is not stored before its first message. hooks: changed(session), grew(session,
  // answer), failed(text), keyWanted(text, session).
  constructor(store, hooks, record = null, messages = []) {
    const now = Date.now();
    this.store = store;
    this.hooks = hooks;
    this.stored = Boolean(record);
    this.record = record ??
      { id: newId(), title: "New chat", created: now, updated: now, current: "", settings: null, version: 0 };
    this.tree = new Tree(messages);
    const current = this.tree.messages.get(this.record.current);
    if (current) this.tree.choose(current);
    this.run = null;
  }

  get id() { return this.record.id; }

  // What other tabs have stored since.
  merge({ record, messages }) {
    this.record = record;
    for (const message of messages) if (message.id !== this.run?.answer.id) this.tree.add(message);
    const known = new Set(messages.map(({ id }) => id));
    for (const message of [...this.tree.messages.values()]) {
      if (!known.has(message.id) && message.saved && message !== this.run?.answer) this.tree.remove(message);
    }
    for (const message of this.tree.messages.values()) message.saved = known.has(message.id);
  }

  // ---- into the store

  async save(message, change = {}) {
    const { saved, waiting, ...kept } = message;
    try {
      if (!this.stored) await this.create(kept);
      this.record = await this.store.putMessage(kept, () => change);
      message.saved = true;
    } catch (problem) {
      if (this.removed) return;
      this.hooks.failed(problem instanceof ChatGone ? problem.message :
        `This could not be stored: ${problem.message || problem.name}. Export the chat before you leave the page.`);
    }
  }

  async create(message) {
    this.stored = true;
    try {
      await this.store.addChats([{ record: this.record, messages: [message] }]);
    } catch (problem) {
      this.stored = false;
      throw problem;
    }
  }

  async change(change) {
    Object.assign(this.record, change);
    if (!this.stored) return;
    try {
      this.record = await this.store.changeChat(this.id, () => change);
    } catch (problem) { this.hooks.failed(problem.message); }
  }

  // ---- what is said

  message(role, parent, fields) {
    return { id: newId(), chat: this.id, parent: parent?.id ?? "", role, content: "", created: Date.now(), version: 1,
      ...fields };
  }

  // Adds a message of a person below a parent and asks for an answer to it.
  say(parent, messages) {
    let below = parent;
    for (const fields of messages) {
      below = this.tree.add(this.message(fields.role, below, fields));
      // Two of the same millisecond keep their order.
      below.created = Math.max(below.created, (this.lastCreated ?? 0) + 1);
      this.lastCreated = below.created;
      this.tree.choose(below);
      if (!this.stored) this.record.title = titleOf(below);
      this.save(below, { updated: Date.now(), current: below.id });
    }
    return this.answer(below);
  }

  async answer(parent) {
    const answer = this.tree.add(this.message(
      "assistant", parent, { reasoning: "", toolCalls: [], finish: "writing", writer: this.store.tab }));
    answer.created = Math.max(answer.created, (this.lastCreated ?? 0) + 1);
    this.lastCreated = answer.created;
    this.tree.choose(answer);
    const controller = new AbortController();
    this.run = { answer, controller, nextSave: Date.now() + kSaveFirst };
    this.hooks.changed(this);
    announce("Answering");
    const settings = settingsOf(this);
    await fillAnswer(answer, requestBody(this.tree.pathTo(parent), settings), controller.signal, () => {
      this.hooks.grew(this, answer);
      this.saveSometimes();
    });
    if (answer.finish === "writing") answer.finish = "";
    this.run = null;
    ++answer.version;
    await this.save(answer, { updated: Date.now(), current: answer.id });
    this.hooks.changed(this);
    this.announceEnd(answer);
    if (answer.errorStatus === 401) this.hooks.keyWanted(answer.error, this);
  }

  saveSometimes() {
    if (Date.now() < this.run.nextSave) return;
    this.run.nextSave = Date.now() + kSaveEvery;
    ++this.run.answer.version;
    this.save(this.run.answer);
  }

  announceEnd(answer) {
    if (answer.error) return announce("");  // the error itself is an alert
    return announce(answer.content || (answer.toolCalls.length ? "The model calls a tool." : "The answer is empty."));
  }

  stop() { this.run?.controller.abort(); }

  // The chat was deleted: what still comes is not stored, and nobody need know.
  drop() {
    this.removed = true;
    this.stop();
  }

  // The page goes away: the answer as far as it has come.
  leaving() {
    if (!this.run) return [];
    const { saved, ...answer } = this.run.answer;
    return [{ ...answer, version: ++this.run.answer.version, finish: "interrupted", waiting: "" }];
  }

  // Another answer to the same question. One that came to nothing gives way.
  retry(answer) {
    if (this.run) return;
    const parent = this.tree.messages.get(answer.parent) ?? null;
    if (answer.error && !answer.content && !answer.toolCalls.length && !this.tree.hasChildren(answer)) {
      this.tree.remove(answer);
      this.store.removeMessage(answer).catch(() => {});
    }
    this.answer(parent);
  }

  // Another version of a message: a question is answered anew, an answer stands as it was edited.
  edit(message, { text, attachments }) {
    if (this.run) return;
    const parent = this.tree.messages.get(message.parent) ?? null;
    if (message.role === "user") {
      this.say(parent, [{ role: "user", content: text, attachments }]);
      return;
    }
    const edited = this.tree.add(this.message("assistant", parent,
      { content: text, reasoning: "", toolCalls: message.toolCalls ?? [], finish: "stop", edited: true }));
    this.tree.choose(edited);
    this.save(edited, { updated: Date.now(), current: edited.id });
    this.hooks.changed(this);
  }

  // Shows another sibling.
  walk(message, step) {
    const other = this.tree.beside(message, step);
    if (!other) return;
    this.tree.choose(other);
    this.hooks.changed(this);
    this.change({ current: this.tree.leaf().id });
  }

  // Answers of tabs that are no longer there will not go on. Half a version: if such a tab was only slow to say that
  // it is there, what it writes next is newer.
  endOrphans(openTabs) {
    for (const message of this.tree.messages.values()) {
      if (message.finish !== "writing" || message === this.run?.answer || openTabs.has(message.writer)) continue;
      message.finish = "interrupted";
      message.version += .5;
      this.save(message);
    }
  }
}
