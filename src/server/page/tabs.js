// Which pages of this browser are open. Each holds a lock under its own name as long as it lives, so that one that is
// too busy to answer is known to be there. Where a browser has no such locks (they ask for https, or a server on the
// same machine) pages ask each other, and one that does not answer in time counts as gone.
import { tabOnly } from "/page/api.js";
import { newId } from "/page/dom.js";

const kLock = "fourfold.tab.";
const kGone = "fourfold.gone";
const kPatience = 200;  // ms for other pages to say that they are there

export class Tabs {
  // say(kind): to all other pages.
  constructor(say) {
    this.own = newId();  // of this page, until it is left
    this.say = say;
    this.answered = new Set();
    this.locked = false;
    // The page that was here before this one: its lock may be let go a moment after this page has begun.
    this.before = tabOnly.get(kGone);
  }

  // The page goes away.
  leave() { tabOnly.set(kGone, this.own); }

  // Others can know of this page from here on.
  enter() {
    return new Promise((resolve) => {
      if (!navigator.locks) return resolve();
      navigator.locks.request(kLock + this.own, () => {
        this.locked = true;
        resolve();
        return new Promise(() => {});  // until the page goes away
      }).catch(resolve);  // forbidden: as if there were none
    });
  }

  // Whether it was about who is there.
  hear({ kind, tab }) {
    if (kind === "hello") this.say("here");
    else if (kind === "here") this.answered.add(tab);
    return kind === "hello" || kind === "here";
  }

  // The names of those that are open now, this one among them.
  async open() {
    const open = new Set([this.own, ...(this.locked ? await this.holders() : await this.answers())]);
    open.delete(this.before);
    return open;
  }

  async holders() {
    const { held } = await navigator.locks.query();
    return held.filter(({ name }) => name.startsWith(kLock)).map(({ name }) => name.slice(kLock.length));
  }

  async answers() {
    this.answered.clear();
    this.say("hello");
    await new Promise((resolve) => setTimeout(resolve, kPatience));
    return this.answered;
  }
}
