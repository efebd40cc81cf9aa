// The shown path of a chat: its messages, keeping what did not change, and staying at the end while the reader is
// there.
import { byId } from "/page/dom.js";
import { MessageView } from "/page/message.js";

const kAtOnce = 24;    // messages of a long chat that are drawn before the page is shown; the rest follows
const kNearEnd = 60;   // px
const kShare = 10;     // drawing takes at most one part in so many of the time

// At most one drawing a frame, and none sooner than its cost allows, however fast the pieces come: one that takes
// long (a table of a thousand rows) is done less often.
export class Frames {
  constructor(draw) {
    this.draw = draw;
    this.due = 0;
    this.next = 0;
  }
  soon() {
    this.due ||= requestAnimationFrame(() => this.frame());
  }
  frame() {
    this.due = 0;
    const start = performance.now();
    if (start < this.next) {
      this.soon();
      return;
    }
    this.draw();
    const end = performance.now();
    this.next = end + (kShare - 1) * (end - start);
  }
  cancel() {
    cancelAnimationFrame(this.due);
    this.due = 0;
  }
}

export class Conversation {
  // act(action, view, button): what a button of a message asks for.
  constructor(act) {
    this.log = byId("log");
    this.list = byId("messages");
    this.views = new Map();
    this.idle = 0;
    this.list.addEventListener("click", (event) => this.clicked(event, act));
    this.list.addEventListener("submit", (event) => {
      event.preventDefault();
      act("save-edit", this.viewAt(event.target), event.target);
    });
    this.sticks = true;  // whether the reader is at the end, and stays there when the text grows
    this.log.addEventListener("scroll", () => {
      this.sticks = this.atEnd();
      this.showEndButton();
    }, { passive: true });
    byId("to-end").addEventListener("click", () => { this.toEnd(true); byId("input").focus(); });
    // Not all growth is ours: a font comes, a row is laid out that was out of sight.
    const grown = new ResizeObserver(() => this.stay());
    grown.observe(this.list);
    grown.observe(this.log);
  }

  viewAt(node) { return this.views.get(node.closest(".message")?.dataset.id) ?? null; }

  clicked(event, act) {
    const link = event.target.closest("a[href^='#']");
    if (link) {
      // Marks of footnotes: the address stays that of the chat.
      event.preventDefault();
      const target = document.getElementById(link.hash.slice(1));
      target?.scrollIntoView({ block: "nearest" });
      target?.classList.add("pointed-at");
      setTimeout(() => target?.classList.remove("pointed-at"), 1600);
      return;
    }
    const button = event.target.closest("button[data-action]");
    if (button) act(button.dataset.action, this.viewAt(button), button);
  }

  // ---- drawing

  show(chat) {
    if (this.chat !== chat) {
      this.chat = chat;
      this.views.clear();
      this.list.replaceChildren();
    }
    this.refresh();
  }

  stateOf(message, path, at) {
    const siblings = this.chat.tree.siblings(message);
    return {
      last: at === path.length - 1,
      live: this.chat.run?.answer === message,
      at: siblings.indexOf(message),
      of: siblings.length
    };
  }

  refresh() {
    const path = this.chat.tree.path();
    const shown = new Map();
    const states = path.map((message, at) => this.stateOf(message, path, at));
    for (const message of path) shown.set(message.id, this.views.get(message.id) ?? new MessageView(message));
    this.views = shown;
    const views = [...shown.values()];
    const nodes = views.map((view) => view.node);
    // Only what is new is put in: replacing all would lose focus, selection and what is unfolded.
    nodes.forEach((node, at) => {
      if (this.list.children[at] !== node) this.list.insertBefore(node, this.list.children[at] ?? null);
    });
    while (this.list.children.length > nodes.length) this.list.lastChild.remove();
    this.drawFromEnd(views, states);
    // Nothing is edited or asked again while an answer is written; said once, not to each of five hundred messages.
    this.list.classList.toggle("writing", Boolean(this.chat.run));
    byId("empty").hidden = path.length > 0;
  }

  // The end of a long chat is drawn at once, what is above it in idle moments, so that it opens without delay.
  drawFromEnd(views, states) {
    clearTimeout(this.idle);
    let at = views.length - 1;
    let late = 0;
    for (; at >= 0 && late < kAtOnce; --at) {
      if (!views[at].stamp) ++late;
      views[at].update(states[at]);
    }
    const more = () => {
      const end = performance.now() + 8;
      this.followed(() => {
        for (; at >= 0 && performance.now() < end; --at) views[at].update(states[at]);
      });
      if (at >= 0) this.idle = setTimeout(more);
    };
    if (at >= 0) this.idle = setTimeout(more);
  }

  // More of an answer.
  grow(message) {
    const view = this.views.get(message.id);
    if (view) this.followed(() => view.update({ ...view.state, live: true }));
  }

  // ---- scrolling

  atEnd() { return this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < kNearEnd; }

  // Follows the text down as long as the reader is at the end.
  followed(change) {
    change();
    this.stay();
  }

  stay() {
    if (this.sticks) this.log.scrollTop = this.log.scrollHeight;
    this.showEndButton();
  }

  toEnd(smooth = false) {
    // Not while text flows: the end would move away from the motion.
    const glide = smooth && !this.chat?.run && !matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.sticks = !glide;
    this.log.scrollTo({ top: this.log.scrollHeight, behavior: glide ? "smooth" : "instant" });
    this.showEndButton();
  }

  showEndButton() {
    const button = byId("to-end");
    button.hidden = this.sticks || this.atEnd();
    button.classList.toggle("busy-dot", Boolean(this.chat?.run));
  }
}
