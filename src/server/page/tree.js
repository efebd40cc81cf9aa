// The messages of a chat as a tree: an edited question and an answer that was asked for again are siblings of what
// they replace, and one path from the root to a leaf is shown.
const byAge = (a, b) => a.created - b.created || (a.id < b.id ? -1 : 1);

export class Tree {
  constructor(messages = []) {
    this.messages = new Map();
    this.children = new Map();  // parent id ("" for none) -> messages, the oldest first
    this.chosen = new Map();    // parent id -> id of the child that is shown
    for (const message of messages) this.add(message);
  }

  // Takes a message, or a newer version of one.
  add(message) {
    const known = this.messages.get(message.id);
    if (known) {
      if (known !== message && message.version > known.version) Object.assign(known, message);
      return known;
    }
    this.messages.set(message.id, message);
    const siblings = this.children.get(message.parent) ?? [];
    siblings.push(message);
    siblings.sort(byAge);
    this.children.set(message.parent, siblings);
    return message;
  }

  remove(message) {
    this.messages.delete(message.id);
    const siblings = this.siblings(message).filter((other) => other !== message);
    this.children.set(message.parent, siblings);
    if (this.chosen.get(message.parent) === message.id) this.chosen.delete(message.parent);
  }

  siblings(message) { return this.children.get(message.parent) ?? []; }
  hasChildren(message) { return (this.children.get(message.id) ?? []).length > 0; }

  // What is shown below a parent: the chosen child, or the newest.
  childOf(parent) {
    const children = this.children.get(parent) ?? [];
    return children.find((child) => child.id === this.chosen.get(parent)) ?? children.at(-1) ?? null;
  }

  path() {
    const messages = [];
    const seen = new Set();
    for (let next = this.childOf(""); next && !seen.has(next.id); next = this.childOf(next.id)) {
      seen.add(next.id);
      messages.push(next);
    }
    return messages;
  }

  // Messages from the root to this one.
  pathTo(message) {
    const messages = new Set();
    for (let at = message; at && !messages.has(at); at = this.messages.get(at.parent)) messages.add(at);
    return [...messages].reverse();
  }

  leaf() { return this.path().at(-1) ?? null; }

  // Shows a message, and below it what was shown there before.
  choose(message) {
    for (const { id, parent } of this.pathTo(message)) this.chosen.set(parent, id);
  }

  // The sibling `step` further, or null at the end.
  beside(message, step) {
    const siblings = this.siblings(message);
    return siblings[siblings.indexOf(message) + step] ?? null;
  }
}
