// The chat page: which chat is open, and how the parts speak to each other.
import { request } from "/page/api.js";
import { Composer } from "/page/composer.js";
import { Conversation, Frames } from "/page/conversation.js";
import { copyFormulae, copyFrom } from "/page/copy.js";
import { announce, byId, fillIcons, plural } from "/page/dom.js";
import { download, fileName, ImportError, kMostBytes, readChats, toJson, toMarkdown } from "/page/exchange.js";
import { leaveBehind, takeLeft } from "/page/leaving.js";
import { facts } from "/page/message.js";
import { Meter } from "/page/meter.js";
import { hideNotice, notice } from "/page/notice.js";
import { Session } from "/page/session.js";
import { Settings, settingsOf } from "/page/settings.js";
import { Shortcuts } from "/page/shortcuts.js";
import { Sidebar } from "/page/sidebar.js";
import { Store } from "/page/store.js";
import { takeOver } from "/page/takeover.js";

fillIcons();
const store = await Store.open();
const sessions = new Map();  // chats that are open or being answered in this page
let session = null;          // the one that is shown
let chats = [];              // records of all, the newest first

const hooks = {
  changed(changed) {
    sidebar.showRunning(changed.id, Boolean(changed.run));
    if (changed === session) showSession();
    loadChats();
  },
  grew(grown) { if (grown === session) frames.soon(); },
  failed(text) { notice(text, { seconds: 0 }); },
  keyWanted(text, asked) {
    settings.open(text, () => { loadModel(); asked.retry(asked.tree.leaf()); });
  },
};

const frames = new Frames(() => {
  const answer = session.run?.answer;
  if (!answer) return;
  conversation.grow(answer);
  byId("speed").textContent = facts({ rate: answer.rate });
  showMeter();
});

// ---- the open chat

function showSession() {
  conversation.followed(() => conversation.show(session));
  composer.showBusy(Boolean(session.run));
  if (!session.run) byId("speed").textContent = "";
  showTitle();
  showMeter();
}

function showMeter() { meter.update(session.tree.path(), settingsOf(session), Boolean(session.run)); }

function showTitle() {
  const title = session.stored ? session.record.title : "New chat";
  byId("title").textContent = title;
  document.title = [session.stored ? title : "", byId("model").textContent, "Fourfold"].filter(Boolean).join(" · ");
  byId("own-settings").hidden = !session.record.settings;
  for (const id of ["export-markdown", "export-json", "rename-chat", "delete-chat"])
    byId(id).disabled = !session.stored;
}

function open(next) {
  session = next;
  sessions.set(session.id, session);
  for (const [id, other] of sessions) if (other !== session && !other.run) sessions.delete(id);
  const address = session.stored ? `#${session.id}` : location.pathname;
  if (location.hash.slice(1) !== (session.stored ? session.id : "")) history.pushState(null, "", address);
  byId("announcer").textContent = "";
  showSession();
  conversation.toEnd();
  sidebar.show(chats, session.id);
  composer.open(session.stored ? session.id : "new");
}

function newChat() {
  open(new Session(store, hooks));
  sidebar.chosen();
  byId("input").focus();
}

// Whatever is wrong with a chat, its address must not make the page unusable.
async function openChat(id) {
  try {
    await openStored(id);
  } catch (problem) {
    notice(`This chat cannot be opened: ${problem.message}`, { seconds: 0 });
    sessions.delete(id);
    open(new Session(store, hooks));
  }
}

async function openStored(id) {
  if (session?.id === id) return;
  const known = sessions.get(id);
  const found = known ? null : await store.chat(id);
  if (!known && !found) {
    notice("This chat is not in this browser any more.");
    open(new Session(store, hooks));
    return;
  }
  open(known ?? new Session(store, hooks, found.record, found.messages));
  if (!known) session.merge(found);
  endOrphans(session);
}

async function endOrphans(opened) {
  if (![...opened.tree.messages.values()].some(({ finish }) => finish === "writing")) return;
  opened.endOrphans(await store.tabs.open());
  if (opened === session) showSession();
}

async function loadChats() {
  chats = await store.chats();
  sidebar.show(chats, session?.id ?? "");
}

// Another tab has done something.
async function heard({ kind, chat }) {
  loadChats();
  const known = sessions.get(chat);
  if (!known?.stored) return;
  if (kind === "removed") {
    known.drop();
    sessions.delete(chat);
    if (known === session) {
      notice("This chat was deleted in another tab.");
      const [text, files] = [byId("input").value, composer.attachments];
      newChat();
      if (text || files.length) composer.fill(text, files);
    }
    return;
  }
  const found = await store.chat(chat);
  if (!found) return;
  known.merge(found);
  if (known === session) showSession();
}

// ---- what people do

function send(text, attachments) {
  if (session.run) return;
  const parent = session.tree.leaf();
  if (parent?.finish === "writing") {
    notice("This answer is being written in another tab; wait for it, or stop it there.");
    endOrphans(session);
    return;
  }
  const saying = session.say(parent, [{ role: "user", content: text, attachments: [...attachments] }]);
  if (location.hash.slice(1) !== session.id) history.replaceState(null, "", `#${session.id}`);
  composer.sent(session.id);
  showSession();
  conversation.toEnd();
  loadChats();
  if (!matchMedia("(pointer: coarse)").matches) byId("input").focus();  // on a phone the answer needs the room
  return saying;
}

function sendResults(view) {
  const fields = [...view.node.querySelectorAll(".tool-answer")];
  session.say(view.message, view.message.toolCalls.map((call, at) =>
    ({ role: "tool", toolCallId: call.id, content: fields[at]?.value ?? "" })));
}

// What is typed while editing is a draft too.
const editPlace = (view) => `${session.id}/${view.message.id}`;
async function edit(view) {
  if (session.run || view.form) return;
  const { content, attachments = [] } = view.message;
  const draft = await store.draft(editPlace(view)).catch(() => null);
  if (view.form) return;
  const place = editPlace(view);
  view.edit(draft ?? { text: content, attachments }, (changed) => store.putDraft(place, changed).catch(() => {}));
}

function endEdit(view, save) {
  const { draft, message } = view;
  if (save && !draft.text.trim() && !draft.attachments.length) return;
  store.removeDraft(editPlace(view)).catch(() => {});
  view.endEdit();
  const changed = draft.text !== message.content ||
    JSON.stringify(draft.attachments) !== JSON.stringify(message.attachments ?? []);
  if (save && (changed || message.role === "user"))
    session.edit(message, { text: draft.text.trim(), attachments: draft.attachments });
  byId("input").focus();
}

const kActs = {
  copy: (view, button) => copyFrom(button),
  edit,
  "save-edit": (view) => endEdit(view, true),
  "cancel-edit": (view) => endEdit(view, false),
  retry: (view) => session.retry(view.message),
  previous: (view) => walk(view, -1),
  next: (view) => walk(view, 1),
  "send-results": sendResults,
};

function walk(view, step) {
  session.walk(view.message, step);
  // The focus stays on the arrow, of the version that is shown now.
  const shown = [...conversation.views.values()].find(({ message }) => message.parent === view.message.parent);
  const arrows = shown?.node.querySelector(".branches");
  const usable = arrows?.querySelector(`[data-action=${step > 0 ? "next" : "previous"}]:not(:disabled)`);
  (usable ?? arrows?.querySelector("button:not(:disabled)"))?.focus();
  announce(`Version ${arrows?.textContent ?? ""}`);
}

const lastView = (role) => [...conversation.views.values()].findLast(({ message }) => message.role === role);

function escape() {
  const editing = [...conversation.views.values()].find((view) => view.form);
  if (editing) endEdit(editing, false);
  else if (sidebar.isOver()) sidebar.toggle(false);
  else if (session.run) stop();
  else hideNotice();
}

function stop() {
  session.stop();
  byId("input").focus();
}

// ---- chats as a whole

async function removeChat(id) {
  const title = chats.find((chat) => chat.id === id)?.title ?? "The chat";
  sessions.get(id)?.drop();
  await store.deleteChat(id);
  sessions.delete(id);
  if (session.id === id) newChat();
  await loadChats();
  const purge = setTimeout(() => store.purge(id), 9000);
  const undo = async () => {
    clearTimeout(purge);
    await store.restoreChat(id).catch((problem) => hooks.failed(problem.message));
    await loadChats();
    openChat(id);
  };
  notice(`“${title}” was deleted.`, { label: "Undo", action: undo });
}

async function renameChat(id, title) {
  const known = sessions.get(id);
  if (known) await known.change({ title });
  else await store.changeChat(id, () => ({ title })).catch((problem) => hooks.failed(problem.message));
  showTitle();
  loadChats();
}

async function exportAll() {
  const all = [];
  for (const { id } of await store.chats()) all.push(await store.chat(id));
  const present = all.filter(Boolean);
  if (!present.length) notice("There are no chats to export.");
  else download(`fourfold-chats-${new Date().toISOString().slice(0, 10)}.json`, "application/json", toJson(present));
}

async function importFile(file) {
  try {
    if (file.size > kMostBytes) throw new ImportError(`${file.name} is larger than ${kMostBytes >> 20} MiB.`);
    const found = readChats(file.name, await file.text());
    await store.addChats(found);
    await loadChats();
    notice(`${plural(found.length, "chat")} imported.`);
    if (found.length === 1) openChat(found[0].record.id);
  } catch (problem) {
    notice(`${file.name} was not imported. ${problem.message}`, { seconds: 0 });
  }
}

function exportMarkdown() {
  download(
    fileName(session.record.title, "md"), "text/markdown", toMarkdown(session.record.title, session.tree.path()));
}

function exportJson() {
  const record = { ...session.record, current: session.tree.leaf()?.id ?? "" };
  const file = toJson([{ record, messages: [...session.tree.messages.values()] }]);
  download(fileName(record.title, "json"), "application/json", file);
}

function listen() {
  const press = (id, action) => byId(id).addEventListener("click", action);
  press("new-chat", newChat);
  press("new-chat-top", newChat);
  press("stop", stop);
  press("open-settings", () => settings.open());
  press("own-settings", () => settings.open());
  press("open-shortcuts", () => shortcuts.open());
  press("open-menu", () => byId("menu").showModal());
  press("close-menu", () => byId("menu").close());
  const inMenu = (id, action) => press(id, () => { byId("menu").close(); action(); });
  inMenu("export-markdown", exportMarkdown);
  inMenu("export-json", exportJson);
  inMenu("export-all", exportAll);
  inMenu("rename-chat", () => { sidebar.toggle(true, false); sidebar.startRename(session.id); });
  inMenu("delete-chat", () => removeChat(session.id));
  inMenu("import-chats", () => byId("import-file").click());
  byId("import-file").addEventListener("change", ({ target }) => {
    const [file] = target.files;
    target.value = "";
    if (file) importFile(file);
  });
  // A click beside a dialog closes it.
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("mousedown", ({ target, clientX, clientY }) => {
      const { left, right, top, bottom } = dialog.getBoundingClientRect();
      if (target === dialog && (clientX < left || clientX > right || clientY < top || clientY > bottom))
        dialog.close();
    });
  }
  document.addEventListener("copy", copyFormulae);
  addEventListener("popstate", () => followAddress());
  // The page's only listener to this: behind the first one promises go on, and by then the browser has cut off the
  // answer, which would look as if it had ended by itself.
  addEventListener("pagehide", () => {
    leaveBehind(store, [...sessions.values()].flatMap((other) => other.leaving()), composer.leaving());
    store.tabs.leave();
  });
}

async function loadModel() {
  try {
    const model = (await (await request("/v1/models")).json()).data[0];
    byId("model").textContent = model.id;
    meter.limit = model.max_model_len ?? 0;
    showSession();
  } catch (problem) {
    if (problem.status === 401) settings.open(problem.message, loadModel);
    else byId("model").textContent = problem.message;
  }
}

async function followAddress() {
  const id = location.hash.slice(1);
  if (id) await openChat(id);
  else if (!session || session.stored) open(new Session(store, hooks));
}

// ---- parts

const meter = new Meter();
const conversation = new Conversation((action, view, button) => kActs[action]?.(view, button));
const editLast = () => { const view = lastView("user"); if (view) edit(view); };
const composer = new Composer(store, { send, contextTokens: () => meter.limit, editLast });
const sidebar = new Sidebar({ open: openChat, rename: renameChat, remove: removeChat,
  search: (text, among, wanted) => store.search(text, among, wanted) });
const settings = new Settings({
  chat: () => session,
  saveChat: (own) => session.change({ settings: own }).then(showTitle),
  changed: () => showSession()
});
const beside = (step) => { const id = sidebar.beside(step); if (id) openChat(id); };
const shortcuts = new Shortcuts({ newChat, escape, editLast,
  search: () => { sidebar.toggle(true); byId("search").select(); },
  toggleSide: () => sidebar.toggle(),
  settings: () => settings.open(),
  previousChat: () => beside(-1),
  nextChat: () => beside(1),
  focusInput: () => byId("input").focus(),
  copyLast: () => lastView("assistant")?.actions.querySelector(".copy")?.click(),
  retryLast: () => { const view = lastView("assistant"); if (view && !session.run) session.retry(view.message); },
  toEnd: () => conversation.toEnd(true) });

listen();
await takeOver(store).catch(
  (problem) => hooks.failed(`The conversation of an earlier version was not taken over: ${problem.message}`));
await takeLeft(store).catch((problem) => hooks.failed(problem.message));
await loadChats();
await followAddress();
store.listen(heard);
store.outdated = () =>
  notice("A newer version of this page is open in another tab. Load this one again.", { seconds: 0 });
if (!store.lasting)
  notice("This browser keeps nothing for this page: chats last until you leave it. Export what you want to keep.",
    { seconds: 0 });
store.purgeStale().catch(() => {});
loadModel();
document.body.dataset.ready = "yes";
