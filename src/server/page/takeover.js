// Conversations that an earlier version of the page kept in local storage become chats, once.
import { kept } from "/page/api.js";
import { newId } from "/page/dom.js";
import { titleOf } from "/page/session.js";

const kOld = ["fourfold.previous", "fourfold.conversation"];

function oldMessages(name) {
  try {
    const messages = JSON.parse(kept.get(name) ?? "[]");
    return Array.isArray(messages) ? messages.filter((message) => ["user", "assistant", "tool"].includes(message?.role)) : [];
  } catch { return []; }
}

// The old list as a tree of one branch.
function asChat(list, created) {
  const chat = newId();
  let parent = "";
  const messages = list.map((old, at) => {
    const { role, content = "", reasoning = "", toolCalls = [], tool_call_id: toolCallId, finish = "", error, usage, firstSeconds, rate, thoughtSeconds } = old;
    const message = { id: newId(), chat, parent, role, content: String(content), created: created + at, version: 1,
      ...(role === "tool" ? { toolCallId } : {}),
      ...(role === "assistant" ? { reasoning, toolCalls, finish, error, errorStatus: error ? 1 : 0, usage, firstSeconds, rate, thoughtSeconds } : {}) };
    parent = message.id;
    return message;
  });
  const record = { id: chat, title: titleOf(messages[0]), created, updated: created, current: parent, settings: null, version: 1 };
  return { record, messages };
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
