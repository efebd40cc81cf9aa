// The side bar: all chats by day, search, rename, delete. On a narrow screen it lies over the page while it is open.
import { byId, element, iconButton, plural } from "/page/dom.js";

const kDay = 86400000;
const narrow = matchMedia("(max-width: 52rem)");

function groupOf(when) {
  const today = new Date().setHours(0, 0, 0, 0);
  if (when >= today) return "Today";
  if (when >= today - kDay) return "Yesterday";
  if (when >= today - 7 * kDay) return "The last seven days";
  if (when >= today - 30 * kDay) return "The last thirty days";
  return "Older";
}

export class Sidebar {
  // open(id), rename(id, title), remove(id), search(text, wanted) -> [{ id, snippet }].
  constructor(actions) {
    this.actions = actions;
    this.chats = [];
    this.current = "";
    this.running = new Set();
    this.found = null;  // id -> snippet, while a search is on
    this.search = byId("search");
    this.search.addEventListener("input", () => this.searched());
    this.search.addEventListener("keydown", (event) => this.searchKey(event));
    byId("chats").addEventListener("click", (event) => this.clicked(event));
    byId("chats").addEventListener("dblclick", (event) => {
      const item = event.target.closest("li");
      if (item) this.startRename(item.dataset.id);
    });
    byId("toggle-side").addEventListener("click", () => this.toggle());
    byId("close-side").addEventListener("click", () => this.toggle(false));
    byId("veil").addEventListener("click", () => this.toggle(false));
    narrow.addEventListener("change", () => this.toggle(!narrow.matches, false));
    this.toggle(!narrow.matches, false);
  }

  isOver() { return narrow.matches && this.isOpen; }

  toggle(open = !this.isOpen, focus = true) {
    this.isOpen = open;
    document.body.classList.toggle("side-open", open);
    byId("side").inert = !open;
    byId("page").inert = open && narrow.matches;
    byId("veil").hidden = !(open && narrow.matches);
    byId("toggle-side").setAttribute("aria-expanded", String(open));
    if (!focus) return;
    if (open) this.search.focus();
    else byId("input").focus();
  }

  // After a choice the page is what is wanted, where the bar hides it.
  chosen() { if (this.isOver()) this.toggle(false); }

  // ---- search

  // Titles at once; texts when typing has paused.
  async searched() {
    const text = this.search.value.trim();
    const turn = (this.turn = (this.turn ?? 0) + 1);
    if (!text) {
      this.found = null;
      this.draw();
      return;
    }
    this.found = new Map(
      this.chats.filter((chat) => chat.title.toLowerCase().includes(text.toLowerCase())).map(({ id }) => [id, ""]));
    this.draw();
    const wanted = () => turn === this.turn;
    await new Promise((resolve) => setTimeout(resolve, 120));
    if (!wanted()) return;
    const texts = await this.actions.search(text, this.chats, wanted);
    if (!wanted()) return;  // what an earlier text found is no answer to this one
    for (const { id, snippet } of texts) {
      if (!this.found.get(id)) this.found.set(id, snippet);
    }
    this.draw();
    byId("search-count").textContent = `${plural(this.found.size, "chat")} found`;
  }

  searchKey(event) {
    const first = byId("chats").querySelector(".open-chat");
    if (event.key === "Escape" && this.search.value) {
      event.stopPropagation();
      this.search.value = "";
      this.searched();
    } else if (event.key === "Enter" && first && this.search.value) first.click();
    else if (event.key === "ArrowDown" && first) {
      event.preventDefault();
      first.focus();
    }
  }

  // ---- the list

  show(chats, current) {
    this.chats = chats;
    this.current = current;
    if (!this.renaming) this.draw();
  }

  showRunning(id, running) {
    if (running) this.running.add(id);
    else this.running.delete(id);
    byId("chats").querySelector(`[data-id="${id}"]`)?.classList.toggle("running", running);
  }

  itemNode({ id, title }) {
    const open = element("button", { type: "button", className: "open-chat" },
      element("span", { className: "chat-title", textContent: title, dir: "auto" }));
    open.title = title;
    if (id === this.current) open.setAttribute("aria-current", "page");
    const snippet = this.found?.get(id);
    if (snippet) open.append(element("span", { className: "snippet muted", textContent: snippet }));
    const node = element("li", { className: this.running.has(id) ? "running" : "" }, open,
      element("span", { className: "item-actions" }, iconButton("edit", "rename", `Rename ${title}`),
        iconButton("close", "delete", `Delete ${title}`)));
    node.dataset.id = id;
    return node;
  }

  draw() {
    // Answers that grow change nothing here.
    const drawn = JSON.stringify([
      this.chats.map(({ id, title, updated }) => [id, title, groupOf(updated)]), this.current,
      this.found && [...this.found]
    ]);
    if (drawn === this.drawn && !byId("chats").querySelector(".rename")) return;
    this.drawn = drawn;
    const focused = document.activeElement?.closest?.("#chats li")?.dataset.id;
    const shown = this.found ? this.chats.filter(({ id }) => this.found.has(id)) : this.chats;
    const groups = new Map();
    for (const chat of shown) {
      const name = groupOf(chat.updated);
      groups.set(name, [...groups.get(name) ?? [], chat]);
    }
    byId("chats").replaceChildren(...[...groups].flatMap(([name, chats]) =>
      [element("h3", { textContent: name }), element("ul", {}, ...chats.map((chat) => this.itemNode(chat)))]));
    byId("no-chats").hidden = shown.length > 0;
    byId("no-chats").textContent =
      this.found ? "No chat has these words." : "Chats are kept in this browser and appear here.";
    if (focused) byId("chats").querySelector(`[data-id="${focused}"] .open-chat`)?.focus();
  }

  clicked({ target }) {
    const id = target.closest("li")?.dataset.id;
    const action = target.closest("button")?.dataset.action;
    if (!id || target.closest("input")) return;
    if (action === "rename") this.startRename(id);
    else if (action === "delete") this.actions.remove(id);
    else if (target.closest(".open-chat")) {
      this.actions.open(id);
      this.chosen();
    }
  }

  startRename(id) {
    const item = byId("chats").querySelector(`[data-id="${id}"]`);
    const chat = this.chats.find((other) => other.id === id);
    if (!item || !chat || this.renaming) return;
    this.renaming = true;
    const field = element("input", { value: chat.title, maxLength: 200, className: "rename" });
    field.setAttribute("aria-label", `New title of ${chat.title}`);
    item.replaceChildren(field);
    field.select();
    const end = (save) => {
      if (!this.renaming) return;
      this.renaming = false;
      const title = field.value.trim();
      if (save && title && title !== chat.title) this.actions.rename(id, title);
      this.draw();
      byId("chats").querySelector(`[data-id="${id}"] .open-chat`)?.focus();
    };
    field.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") end(true);
      if (event.key === "Escape") end(false);
    });
    field.addEventListener("blur", () => end(true));
  }

  // The chat before or after the open one in the list.
  beside(step) {
    const at = this.chats.findIndex(({ id }) => id === this.current);
    return this.chats[at < 0 ? (step > 0 ? 0 : -1) : at + step]?.id ?? null;
  }
}
