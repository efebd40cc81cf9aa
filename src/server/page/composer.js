// What is typed: the field, its files, and a draft for each chat, so that nothing typed is lost.
import { chip, readFiles } from "/page/attachments.js";
import { byId, show } from "/page/dom.js";
import { notice } from "/page/notice.js";

const kSaveAfter = 250;  // ms without a letter

const hasFiles = (event) => [...event.dataTransfer?.types ?? []].includes("Files");

export class Composer {
  // send(text, attachments), contextTokens(): how long the model's context is, 0 if not known.
  constructor(store, { send, contextTokens, editLast }) {
    Object.assign(this, { store, contextTokens, editLast, attachments: [], timer: 0 });
    this.opened = { place: "new" };  // where what is typed belongs; a chat that is begun takes its place along
    this.filled = Promise.resolve();
    this.input = byId("input");
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.text() || this.attachments.length) send(this.text(), this.attachments);
    });
    this.input.addEventListener("input", () => { this.fit(); this.changed(); });
    this.input.addEventListener("keydown", (event) => this.pressed(event));
    byId("chips").addEventListener("click", ({ target }) => {
      const button = target.closest("[data-action=remove-file]");
      if (!button) return;
      this.attachments.splice(Number(button.dataset.at), 1);
      this.showFiles();
      this.changed();
      this.input.focus();
    });
    this.listenForFiles();
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.flush(); });
  }

  get place() { return this.opened.place; }
  text() { return this.input.value.trim(); }

  pressed(event) {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey && !event.ctrlKey && !event.altKey) {
      event.preventDefault();
      byId("composer").requestSubmit();
    }
    if (event.key === "ArrowUp" && !this.input.value && !event.altKey) {
      event.preventDefault();
      this.editLast();
    }
  }

  fit() {
    this.input.style.height = "auto";
    this.input.style.height = `${this.input.scrollHeight}px`;
  }

  // ---- drafts

  changed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.flush(), kSaveAfter);
  }

  // Stores what is typed for the place it was typed in.
  flush() {
    if (!this.timer) return;
    clearTimeout(this.timer);
    this.timer = 0;
    const { place, attachments } = this;
    const text = this.input.value;
    const { store } = this;
    const saved = text || attachments.length ? store.putDraft(place, { text, attachments }) : store.removeDraft(place);
    saved.catch(() => {});  // it is still in the field
  }

  // What has been typed since the last save, when the page goes away.
  leaving() {
    return this.timer ? [{ place: this.place, text: this.input.value, attachments: this.attachments }] : [];
  }

  // Goes to another chat: what is typed here stays with this one.
  open(place) {
    this.flush();
    this.opened = { place };
    this.fill("", []);
    this.filled = this.fillFrom(place);
  }

  async fillFrom(place) {
    const draft = await this.store.draft(place).catch(() => null);
    // Who has typed meanwhile, or has gone on, is not disturbed.
    if (draft && this.place === place && !this.input.value && !this.attachments.length)
      this.fill(draft.text, draft.attachments);
  }

  fill(text, attachments) {
    this.input.value = text;
    this.attachments = [...attachments];
    show(byId("file-problem"), "");
    this.fit();
    this.showFiles();
  }

  // What was typed has become a message of a chat.
  sent(place) {
    clearTimeout(this.timer);
    this.timer = 0;
    this.store.removeDraft(this.place).catch(() => {});
    this.opened.place = place;
    this.fill("", []);
  }

  showBusy(busy) {
    byId("send").hidden = busy;
    byId("stop").hidden = !busy;
  }

  // ---- files

  listenForFiles() {
    byId("attach").addEventListener("click", () => byId("files").click());
    byId("files").addEventListener("change", ({ target }) => {
      this.take([...target.files]);
      target.value = "";
    });
    this.input.addEventListener("paste", (event) => {
      const files = [...event.clipboardData?.files ?? []];
      if (!files.length) return;
      event.preventDefault();
      this.take(files);
    });
    let depth = 0;
    const over = (inside) => byId("drop").hidden = !inside;
    addEventListener("dragenter", (event) => { if (hasFiles(event)) over(++depth > 0); });
    addEventListener("dragleave", (event) => { if (hasFiles(event)) over(--depth > 0); });
    addEventListener("dragover", (event) => { if (hasFiles(event)) event.preventDefault(); });
    addEventListener("drop", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      over((depth = 0) > 0);
      this.take([...event.dataTransfer.files]);
    });
  }

  // Reading takes its time: files stay with the chat they were given to, whichever is open when they are there.
  async take(files) {
    const { opened } = this;
    const { added, problems } = await readFiles(files, this.attachments.length, this.contextTokens());
    await this.filled;
    if (this.place !== opened.place) {
      const draft = await this.store.draft(opened.place).catch(() => null) ?? { text: "", attachments: [] };
      const attachments = [...draft.attachments, ...added];
      await this.store.putDraft(opened.place, { text: draft.text, attachments })
        .catch((problem) => problems.push(problem.message));
      if (problems.length) notice(problems.join(" "));
      return;
    }
    this.attachments.push(...added);
    this.showFiles();
    show(byId("file-problem"), problems.join(" "));
    this.changed();
    this.input.focus();
  }

  showFiles() {
    byId("chips").hidden = !this.attachments.length;
    byId("chips").replaceChildren(...this.attachments.map((file, at) => chip(file, at, true)));
  }
}
