// The chats of this browser, in IndexedDB: chats, their messages (a tree by parent ids), and drafts. Tabs do not
// overwrite each other: a message has one writer, and what several may change is read and written in one
// transaction. Other tabs hear of every change.
import { memoryTables } from "/page/memory.js";
import { Tabs } from "/page/tabs.js";

const kDatabase = "fourfold";
const kVersion = 1;
const kStale = 60000;  // ms after which a deleted chat is gone for good

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

function upgrade(database) {
  database.createObjectStore("chats", { keyPath: "id" });
  database.createObjectStore("messages", { keyPath: "id" }).createIndex("chat", "chat");
  database.createObjectStore("drafts", { keyPath: "id" });
  database.createObjectStore("facts", { keyPath: "id" });
}

// The tables of a transaction, as IndexedDB or memory has them.
const overDatabase = (database) => async (names, mode, work) => {
  const transaction = database.transaction(names, mode);
  const finished = new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error ?? new Error("The browser ended the transaction."));
  });
  const tables = Object.fromEntries(names.map((name) => {
    const store = transaction.objectStore(name);
    return [name, {
      get: (id) => done(store.get(id)),
      put: (value) => done(store.put(value)),
      remove: (id) => done(store.delete(id)),
      all: () => done(store.getAll()),
      ofChat: (chat) => done(store.index("chat").getAll(chat)),
      keysOfChat: (chat) => done(store.index("chat").getAllKeys(chat)),
    }];
  }));
  let value;
  try {
    value = await work(tables);
  } catch (problem) {
    finished.catch(() => {});
    try { transaction.abort(); } catch { /* it has ended by itself */ }
    throw problem;
  }
  await finished;
  return value;
};

function openDatabase() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(kDatabase, kVersion);
    request.onupgradeneeded = () => upgrade(request.result);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

export class ChatGone extends Error {}

export class Store {
  // lasting: whether what is stored outlives the page.
  constructor(run, lasting) {
    this.run = run;
    this.lasting = lasting;
    this.listeners = [];
    this.tabs = new Tabs((kind) => this.tell(kind));
    this.channel = new BroadcastChannel("fourfold.chats");
    this.channel.onmessage = ({ data }) => this.hear(data);
  }

  static async open() {
    const store = await Store.make();
    await store.tabs.enter();
    return store;
  }

  static async make() {
    try {
      const database = await openDatabase();
      const store = new Store(overDatabase(database), true);
      // A newer page wants to change the tables: it is let through, and this page asks to be loaded again.
      database.onversionchange = () => {
        database.close();
        store.outdated?.();
      };
      return store;
    } catch {
      return new Store(memoryTables(), false);
    }
  }

  get tab() { return this.tabs.own; }

  // listener({ kind: "chat" | "message" | "removed", chat }): what another tab did.
  listen(listener) { this.listeners.push(listener); }
  tell(kind, chat) { this.channel.postMessage({ kind, chat, tab: this.tab }); }

  hear(data) {
    if (this.tabs.hear(data)) return;
    for (const listener of this.listeners) listener(data);
  }

  // ---- chats

  async chats() {
    const all = await this.run(["chats"], "readonly", ({ chats }) => chats.all());
    return all.filter((chat) => !chat.deleted).sort((a, b) => b.updated - a.updated);
  }

  async chat(id) {
    return this.run(["chats", "messages"], "readonly", async ({ chats, messages }) => {
      const record = await chats.get(id);
      return record && !record.deleted ? { record, messages: await messages.ofChat(id) } : null;
    });
  }

  // New chats with all their messages, [{ record, messages }]: all of them are stored, or none.
  async addChats(added) {
    await this.run(["chats", "messages"], "readwrite", async (tables) => {
      for (const { record, messages } of added) {
        await tables.chats.put({ ...record, version: 1 });
        for (const message of messages) await tables.messages.put(message);
      }
    });
    for (const { record } of added) this.tell("chat", record.id);
  }

  // change(record) gets the newest record, whoever wrote it last. Returns what is stored now.
  async changeChat(id, change) {
    const record = await this.run(["chats"], "readwrite", async ({ chats }) => {
      const old = await chats.get(id);
      if (!old) throw new ChatGone("This chat was deleted in another tab.");
      const next = { ...old, ...change(old), version: old.version + 1 };
      await chats.put(next);
      return next;
    });
    this.tell("chat", id);
    return record;
  }

  // Deleted chats can be brought back for a moment; then they are removed with everything that was theirs.
  deleteChat(id) { return this.changeChat(id, () => ({ deleted: Date.now() })).then(() => this.tell("removed", id)); }
  restoreChat(id) { return this.changeChat(id, () => ({ deleted: 0 })); }

  async purge(id) {
    await this.run(["chats", "messages", "drafts"], "readwrite", async ({ chats, messages, drafts }) => {
      const record = await chats.get(id);
      if (!record?.deleted) return;
      for (const key of await messages.keysOfChat(id)) await messages.remove(key);
      for (const draft of await drafts.all()) if (draft.place.split("/")[0] === id) await drafts.remove(draft.id);
      await chats.remove(id);
    });
  }

  async purgeStale() {
    const all = await this.run(["chats"], "readonly", ({ chats }) => chats.all());
    for (const { id, deleted } of all) if (deleted && Date.now() - deleted > kStale) await this.purge(id);
  }

  // ---- messages

  // Stores a message and what it changes of its chat. A message of a chat that is gone is not stored, and an older
  // version never replaces a newer one.
  async putMessage(message, change = () => ({})) {
    const record = await this.run(["chats", "messages"], "readwrite", async ({ chats, messages }) => {
      const chat = await chats.get(message.chat);
      if (!chat || chat.deleted) throw new ChatGone("This chat was deleted in another tab.");
      const old = await messages.get(message.id);
      if (!old || old.version < message.version) await messages.put(message);
      const next = { ...chat, ...change(chat), version: chat.version + 1 };
      await chats.put(next);
      return next;
    });
    this.tell("message", message.chat);
    return record;
  }

  async removeMessage(message) {
    await this.run(["messages"], "readwrite", ({ messages }) => messages.remove(message.id));
    this.tell("message", message.chat);
  }

  // Chats in which a text occurs, newest first: [{ id, snippet }]. Asks `wanted` whether anybody still waits.
  async search(text, chats, wanted) {
    const needle = text.toLowerCase();
    const found = [];
    for (const { id } of chats) {
      if (!wanted()) return [];
      const messages = await this.run(["messages"], "readonly", (tables) => tables.messages.ofChat(id));
      for (const { content } of messages) {
        const at = content.toLowerCase().indexOf(needle);
        if (at < 0) continue;
        found.push(
          { id, snippet: content.slice(Math.max(0, at - 30), at + needle.length + 60).replace(/\s+/g, " ") });
        break;
      }
    }
    return found;
  }

  // ---- drafts: what is typed and not sent, by place (a chat, or a chat and the message that is edited) and tab

  draftId(place) { return `${place}@${this.tab}`; }
  putDraft(place, draft) {
    return this.run(["drafts"], "readwrite",
      ({ drafts }) => drafts.put({ ...draft, id: this.draftId(place), place, tab: this.tab, when: Date.now() }));
  }
  removeDraft(place) { return this.run(["drafts"], "readwrite", ({ drafts }) => drafts.remove(this.draftId(place))); }

  // What another tab had typed when it went away, unless it has stored something newer since.
  leaveDraft({ place, text, attachments }, tab, when) {
    return this.run(["drafts"], "readwrite", async ({ drafts }) => {
      const id = `${place}@${tab}`;
      if ((await drafts.get(id))?.when > when) return;
      if (text || attachments.length) await drafts.put({ id, place, tab, when, text, attachments });
      else await drafts.remove(id);
    });
  }

  // This tab's draft for a place; or the newest that a tab left which is no longer open, which is this tab's from
  // now on.
  async draft(place) {
    const here = (all) => all.filter((draft) => draft.place === place).sort((a, b) => b.when - a.when);
    const found = here(await this.run(["drafts"], "readonly", ({ drafts }) => drafts.all()));
    const own = found.find((draft) => draft.tab === this.tab);
    if (own || !found.length) return own ?? null;
    const open = await this.tabs.open();
    const left = found.find((draft) => !open.has(draft.tab));
    if (!left) return null;
    return this.run(["drafts"], "readwrite", async ({ drafts }) => {
      if (!await drafts.get(left.id)) return null;  // another tab was faster
      await drafts.remove(left.id);
      const taken = { ...left, id: this.draftId(place), tab: this.tab };
      await drafts.put(taken);
      return taken;
    });
  }

  // ---- what is done once for a browser

  async once(id, work) {
    return this.run(["chats", "messages", "drafts", "facts"], "readwrite", async (tables) => {
      if (await tables.facts.get(id)) return false;
      await work(tables);
      await tables.facts.put({ id, when: Date.now() });
      return true;
    });
  }
}
