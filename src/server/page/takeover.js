// Conversations that an earlier version of the page kept in local storage become chats, once.
import { kept } from "/page/api.js";
import { newId } from "/page/dom.js";
import { titleOf } from "/page/session.js";

const kOld = ["fourfold.previous", "fourfold.conversation"];

function oldMessages(name) {
  try {
    const messages = JSON.parse(kept.get(name) ?? "[]");
    if (!Array.isArray(messages)) return [];
    return messages.filter((message) => ["user", "assistant", "tool"].includes(message?.role));
  } catch { return []; }
}

const kCarried = ["reasoning", "toolCalls", "finish", "error", "usage", "firstSeconds", "rate", "thoughtSeconds"];

function fieldsOf(old) {
  if (old.role === "tool") return { toolCallId: old.tool_call_id };
  if (old.role !== "assistant") return {};
  const fields = { reasoning: "", toolCalls: [], finish: "", errorStatus: old.error ? 1 : 0 };
  for (const name of kCarried) if (old[name] !== undefined) fields[name] = old[name];
  return fields;
}

// The old list as a tree of one branch.
function asChat(list, created) {
  const chat = newId();
  let parent = "";
  const messages = list.map((old, at) => {
    const message = { id: newId(), chat, parent, role: old.role, content: String(old.content ?? ""),
      created: created + at, version: 1, ...fieldsOf(old) };
    parent = message.id;
    return message;
  });
  const title = titleOf(messages[0]);
  return { messages,
    record: { id: chat, title, created, updated: created, current: parent, settings: null, version: 1 } };
}

export async function takeOver(store) {
  if (!kOld.some((name) => kept.get(name))) return;
  const now = Date.now();
  // Marked in the same transaction, so that two tabs do not do it twice.
  await store.once("took over local storage", async ({ chats, messages }) => {
    for (const [at, name] of kOld.entries()) {
      const list = oldMessages(name);
      if (!list.length) continue;
      const chat = asChat(list, now - 100000 * (kOld.length - at));
      await chats.put(chat.record);
      for (const message of chat.messages) await messages.put(message);
    }
  });
  if (store.lasting) for (const name of kOld) kept.remove(name);
}
