// What a page that goes away still has: the database may not get a last word in, local storage does. Whoever comes
// next puts it where it belongs.
import { kept } from "/page/api.js";

const kPrefix = "fourfold.leaving.";

export function leaveBehind(store, messages, drafts) {
  if (!store.lasting || (!messages.length && !drafts.length)) return;
  kept.set(kPrefix + store.tab, JSON.stringify({ messages, drafts, when: Date.now() }));
}

// A browser that ended while it wrote may have left half of it.
function leftUnder(name) {
  try { return JSON.parse(kept.get(name) ?? "{}"); } catch { return {}; }
}

// Done by two tabs at once it has the same result as done by one: versions and times decide.
export async function takeLeft(store) {
  for (const name of kept.names().filter((key) => key.startsWith(kPrefix))) {
    const { messages = [], drafts = [], when = 0 } = leftUnder(name);
    for (const message of messages) await store.putMessage(message).catch(() => {});  // its chat may be deleted
    for (const draft of drafts) await store.leaveDraft(draft, name.slice(kPrefix.length), when);
    kept.remove(name);
  }
}
