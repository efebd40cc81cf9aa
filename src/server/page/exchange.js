// Chats as files. JSON has everything, all branches too; Markdown has the shown path, to be read by people and
// other programs. Both can be read again; what comes from a file is checked and bounded before anything of it is
// stored.
import { withFiles } from "/page/attachments.js";
import { newId, plural } from "/page/dom.js";
import { knownFields, problemOf } from "/page/fields.js";

const kFormat = "fourfold-chats";
const kVersion = 1;
export const kMostBytes = 64 << 20;
const kMostChats = 2000;
const kMostMessages = 20000;   // of one chat
const kLongestText = 4 << 20;  // characters of one text
const kRoles = ["user", "assistant", "tool"];
const kFinishes = ["stop", "length", "tool_calls", "stopped", "interrupted", "shutdown", ""];

export class ImportError extends Error {}
const refuse = (text) => { throw new ImportError(text); };

// ---- out

const kShown = [
  "id", "parent", "role", "content", "reasoning", "toolCalls", "toolCallId", "attachments", "finish", "error",
  "usage", "firstSeconds", "rate", "thoughtSeconds", "edited", "created"
];
const chosenOf = (from, names) => Object.fromEntries(
  names.filter((name) => from[name] !== undefined && from[name] !== "").map((name) => [name, from[name]]));

// chats: [{ record, messages }]
export function toJson(chats) {
  const out = chats.map(({ record, messages }) => ({
    title: record.title,
    created: record.created,
    updated: record.updated,
    ...(record.current ? { current: record.current } : {}),
    ...(record.settings ? { settings: record.settings } : {}),
    messages: messages.toSorted((a, b) => a.created - b.created)
                .map((message) => ({ content: "", ...chosenOf(message, kShown) }))
  }));
  return JSON.stringify({ format: kFormat, version: kVersion, chats: out }, null, 1);
}

// A marker before each message says whose it is; text that looks like one is told apart by one "-text" more.
const kMarker = /^<!-- fourfold(-text)*:/gm;
const kHeadings = { user: "You", assistant: "Answer", tool: "Tool result" };

export function toMarkdown(title, path) {
  const parts = path.map((message) => {
    const calls =
      (message.toolCalls ?? []).map((call) => `Calls ${call.name}:\n\n\`\`\`json\n${call.arguments}\n\`\`\``);
    const text = [withFiles(message.content, message.attachments), ...calls].filter(Boolean).join("\n\n");
    const escaped = text.replace(kMarker, (marker) => marker.replace(/:$/, "-text:"));
    return `<!-- fourfold: ${message.role} -->\n## ${kHeadings[message.role]}\n\n${escaped}\n`;
  });
  return `# ${title.replace(/\s+/g, " ")}\n\n${parts.join("\n")}`;
}

// ---- in

const isText = (value) => typeof value === "string" && value.length <= kLongestText;
const isTime = (value) => Number.isFinite(value) && value > 0 && value < 1e15;

function textOf(value, name, place) {
  if (value === undefined) return "";
  if (typeof value !== "string") refuse(`${place}: ${name} is no text.`);
  if (value.length > kLongestText)
    refuse(`${place}: ${name} has ${plural(value.length, "character")}; at most ${kLongestText}.`);
  return value;
}

function listOf(value, place, most, check) {
  if (value === undefined) return [];
  if (!Array.isArray(value) || value.length > most) refuse(`${place} is no list of at most ${most}.`);
  return value.map(check);
}

function callOf(call, place) {
  if (![call?.id, call?.name, call?.arguments].every(isText))
    refuse(`${place} is no tool call with id, name and arguments.`);
  return { id: call.id, name: call.name, arguments: call.arguments };
}

function fileOf(file, place) {
  if (![file?.name, file?.text].every(isText)) refuse(`${place} is no file with name and text.`);
  return { name: file.name.slice(0, 300), text: file.text };
}

const numbersOf = (value, names) =>
  Object.fromEntries(names.filter((name) => Number.isFinite(value?.[name])).map((name) => [name, value[name]]));

function usageOf(value) {
  const usage = numbersOf(value, ["prompt_tokens", "completion_tokens", "total_tokens"]);
  return usage.prompt_tokens >= 0 && usage.completion_tokens >= 0 ? { usage } : {};
}

// What messages of a role have of their own.
const kFieldsOf = {
  user: (raw, place) => ({ attachments:
    listOf(raw.attachments, `${place}.attachments`, 20, (file, at) => fileOf(file, `${place}.attachments[${at}]`)) }),
  tool: (raw, place) => ({ toolCallId: textOf(raw.toolCallId, "toolCallId", place) }),
  assistant: (raw, place) => ({
    reasoning: textOf(raw.reasoning, "reasoning", place),
    finish: kFinishes.includes(raw.finish) ? raw.finish : "",
    toolCalls: listOf(raw.toolCalls, `${place}.toolCalls`, 200, (call, at) => callOf(call, `${place}.toolCalls[${at}]`)),
    ...(raw.error ? { error: textOf(raw.error, "error", place), errorStatus: 1 } : {}),
    ...(raw.edited === true ? { edited: true } : {}),
    ...numbersOf(raw, ["firstSeconds", "rate", "thoughtSeconds"]),
    ...usageOf(raw.usage),
  }),
};

// A message under a new id: a file never replaces what is there.
function messageOf(raw, place, chat, ids, now) {
  if (typeof raw !== "object" || raw === null) refuse(`${place} is no message.`);
  if (!kRoles.includes(raw.role))
    refuse(`${place}: the role is ${JSON.stringify(raw.role)?.slice(0, 40)}, not one of ${kRoles.join(", ")}.`);
  if (!isText(raw.id) || !raw.id) refuse(`${place} has no id.`);
  if (ids.has(raw.id)) refuse(`${place}: the id ${raw.id.slice(0, 40)} is used twice.`);
  const parent = textOf(raw.parent, "parent", place);
  // Parents come first, so that no chat has a ring.
  if (parent && !ids.has(parent)) refuse(`${place}: its parent ${parent.slice(0, 40)} does not come before it.`);
  ids.set(raw.id, newId());
  return { id: ids.get(raw.id), chat, parent: ids.get(parent) ?? "", role: raw.role, version: 1,
    content: textOf(raw.content, "content", place), created: isTime(raw.created) ? raw.created : now,
    ...kFieldsOf[raw.role](raw, place) };
}

function settingsOf(raw, place) {
  if (raw === undefined) return null;
  const settings = knownFields(raw);
  const problem = problemOf(settings);
  if (problem) refuse(`${place}.settings: ${problem}`);
  return settings;
}

function chatOf(raw, place, now) {
  if (typeof raw !== "object" || raw === null) refuse(`${place} is no chat.`);
  if (!Array.isArray(raw.messages)) refuse(`${place} has no list of messages.`);
  if (raw.messages.length > kMostMessages)
    refuse(`${place} has ${plural(raw.messages.length, "message")}; at most ${kMostMessages}.`);
  const [id, ids] = [newId(), new Map()];
  const messages =
    raw.messages.map((message, at) => messageOf(message, `${place}.messages[${at}]`, id, ids, now + at));
  return {
    record: {
      id,
      title: textOf(raw.title, "title", place).slice(0, 200) || "Imported chat",
      created: isTime(raw.created) ? raw.created : now,
      updated: isTime(raw.updated) ? raw.updated : now,
      current: ids.get(raw.current) ?? "",
      settings: settingsOf(raw.settings, place)
    },
    messages
  };
}

function fromJson(text) {
  let file;
  try { file = JSON.parse(text); } catch (problem) { refuse(`The file is no JSON: ${problem.message}`); }
  if (file?.format !== kFormat) refuse(`The file is JSON, but its format is not "${kFormat}".`);
  if (file.version !== kVersion)
    refuse(
      `The file has version ${JSON.stringify(file.version)?.slice(0, 20)}; this page reads version ${kVersion}.`);
  if (!Array.isArray(file.chats) || !file.chats.length) refuse("The file has no chats.");
  if (file.chats.length > kMostChats)
    refuse(`The file has ${plural(file.chats.length, "chat")}; at most ${kMostChats}.`);
  const now = Date.now();
  return file.chats.map((chat, at) => chatOf(chat, `chats[${at}]`, now));
}

function fromMarkdown(text) {
  const [head, ...parts] = ("\n" + text.replace(/\r\n?/g, "\n")).split(/^(?=<!-- fourfold: )/m);
  if (!parts.length) refuse("The file has no messages: the marker <!-- fourfold: user --> does not occur in it.");
  const title = /^# (.*)$/m.exec(head)?.[1] ?? "";
  const messages = parts.map((part, at) => {
    const match = /^<!-- fourfold: (\w+) -->\n(?:## .*\n)?/.exec(part);
    if (!match) refuse(`Message ${at + 1} has no marker like <!-- fourfold: user -->.`);
    const content =
      part.slice(match[0].length).replace(/^\n|\n{1,2}$/g, "").replace(/^(<!-- fourfold(?:-text)*)-text:/gm, "$1:");
    return { id: String(at), parent: at ? String(at - 1) : "", role: match[1], content };
  });
  return [chatOf({ title, messages }, "The chat", Date.now())];
}

// The chats of a file, ready to be stored: [{ record, messages }]. Throws ImportError with a sentence.
export function readChats(name, text) {
  if (text.length > kMostBytes) refuse(`${name} is larger than ${kMostBytes >> 20} MiB.`);
  return /^\s*[{[]/.test(text) ? fromJson(text) : fromMarkdown(text);
}

export function download(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export const fileName = (title, ending) =>
  `${title.replace(/[^\p{L}\p{N} _-]+/gu, "").trim().slice(0, 60) || "chat"}.${ending}`;
