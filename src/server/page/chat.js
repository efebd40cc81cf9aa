// The conversation: what was said, sending, streaming, stopping, and keeping it over a reload.
import { kept, request, streamChat } from "/page/api.js";
import { facts, MessageView } from "/page/message.js";
import { openSettings, requestFields, startSettings, system } from "/page/settings.js";

const kConversation = "fourfold.conversation";
const kPrevious = "fourfold.previous";
const byId = (id) => document.getElementById(id);
const [log, list, input] = [byId("log"), byId("messages"), byId("input")];
const number = new Intl.NumberFormat("en-US");

function stored(name) {
  try {
    const messages = JSON.parse(kept.get(name) ?? "[]");
    return Array.isArray(messages) ? messages : [];
  } catch { return []; }
}

let messages = stored(kConversation);
let views = [];
let running = null;  // AbortController of the answer being written
let editing = -1;    // index of the message that the composer replaces
let contextLimit = 0;

const announce = (text) => { byId("announcer").textContent = text; };

// ---- showing

function lastIndexOf(role) {
  return messages.map((message) => message.role).lastIndexOf(role);
}

function showAll() {
  const lastUser = lastIndexOf("user");
  messages.forEach((message, at) => { message.editable = at === lastUser && !running; });
  views = messages.map((message, at) =>
    (views[at]?.message === message ? views[at] : new MessageView(message))
      .update({ last: at === messages.length - 1, live: Boolean(running) && at === messages.length - 1 }));
  const nodes = views.map((view) => view.node);
  // Only what is new is put in: replacing all would lose focus, selection and what is unfolded.
  nodes.forEach((node, at) => { if (list.children[at] !== node) list.insertBefore(node, list.children[at] ?? null); });
  while (list.children.length > nodes.length) list.lastChild.remove();
  byId("empty").hidden = messages.length > 0;
  byId("bring-back").hidden = messages.length > 0 || stored(kPrevious).length === 0;
  byId("send").hidden = Boolean(running);
  byId("stop").hidden = !running;
  byId("editing").hidden = editing < 0;
  showContext();
}

function showContext() {
  const usage = messages.findLast((message) => message.usage)?.usage;
  const used = usage ? usage.prompt_tokens + usage.completion_tokens : 0;
  const meter = byId("context");
  meter.hidden = !contextLimit;
  const text = `${number.format(used)} of ${number.format(contextLimit)} tokens`;
  meter.setAttribute("aria-valuemax", contextLimit);
  meter.setAttribute("aria-valuenow", Math.min(used, contextLimit));
  meter.setAttribute("aria-valuetext", text);
  byId("context-text").textContent = text;
  meter.classList.toggle("nearly-full", used > .9 * contextLimit);
  byId("context-fill").style.width = `${Math.min(100, 100 * used / Math.max(1, contextLimit))}%`;
}

// Follows the text down as long as the reader is at the end.
function followed(change) {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  change();
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function fitInput() {
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight}px`;
}

function save() {
  kept.set(kConversation, JSON.stringify(messages));
}

// ---- one answer

function asSent(message) {
  if (message.role === "tool") return { role: "tool", tool_call_id: message.tool_call_id, content: message.content };
  if (message.role !== "assistant" || !message.toolCalls.length) return { role: message.role, content: message.content };
  return { role: "assistant", content: message.content, tool_calls: message.toolCalls.map((call) =>
    ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } })) };
}

function requestBody(before) {
  const history = before.filter((message) => message.role !== "assistant" || message.content || message.toolCalls.length);
  const first = system() ? [{ role: "system", content: system() }] : [];
  return { messages: [...first, ...history.map(asSent)], stream: true, stream_options: { include_usage: true, continuous_usage_stats: true },
    ...requestFields() };
}

function takeToolCalls(answer, pieces) {
  for (const piece of pieces) {
    const call = (answer.toolCalls[piece.index] ??= { id: "", name: "", arguments: "" });
    call.id ||= piece.id ?? "";
    call.name += piece.function?.name ?? "";
    call.arguments += piece.function?.arguments ?? "";
  }
}

// What the clock says of an answer: until the server counts tokens, pieces are counted, which are tokens or a few.
class Stopwatch {
  constructor() { this.start = performance.now(); this.pieces = 0; }
  takeText(answer) {
    const now = performance.now();
    ++this.pieces;
    this.last = now;
    if (this.first === undefined) {
      this.first = now;
      this.before = answer.usage?.completion_tokens ?? 1;
    }
    answer.firstSeconds = (this.first - this.start) / 1000;
    if (answer.content || answer.toolCalls.length) this.thought ??= now;
    if (answer.reasoning) answer.thoughtSeconds = ((this.thought ?? now) - this.first) / 1000;
    this.rate(answer);
  }
  rate(answer) {
    const tokens = (answer.usage?.completion_tokens ?? this.pieces) - this.before;
    const elapsed = (this.last - this.first) / 1000;
    if (tokens > 0 && elapsed > 0) answer.rate = tokens / elapsed;
  }
}

function takePiece(answer, piece, watch) {
  if (piece.usage) answer.usage = piece.usage;
  const choice = piece.choices?.[0];
  const delta = choice?.delta ?? {};
  const thought = delta.reasoning_content ?? delta.reasoning ?? "";
  answer.reasoning += thought;
  answer.content += delta.content ?? "";
  if (delta.tool_calls) takeToolCalls(answer, delta.tool_calls);
  if (choice?.finish_reason) answer.finish = choice.finish_reason;
  if (thought || delta.content || delta.tool_calls) watch.takeText(answer);
  else if (piece.usage && watch.first) watch.rate(answer);
}

// At most one layout a frame, however fast the pieces come.
function frameLimited(show) {
  let due = 0;
  return {
    soon() { due ||= requestAnimationFrame(() => { due = 0; show(); }); },
    cancel() { cancelAnimationFrame(due); },
  };
}

async function answerNow() {
  const answer = { role: "assistant", content: "", reasoning: "", toolCalls: [], finish: "" };
  const before = [...messages];
  messages.push(answer);
  running = new AbortController();
  followed(showAll);
  announce("Answering");
  const watch = new Stopwatch();
  const view = views[views.length - 1];
  const frames = frameLimited(() => followed(() => {
    view.update({ live: true });
    byId("speed").textContent = facts({ rate: answer.rate });
    showContext();
  }));
  let keyProblem = "";
  try {
    await streamChat(requestBody(before), running.signal, (piece) => {
      takePiece(answer, piece, watch);
      frames.soon();
    });
  } catch (problem) {
    if (problem.name === "AbortError") answer.finish = "stopped";
    else answer.error = problem.message;
    if (problem.status === 401) keyProblem = problem.message;
  }
  frames.cancel();
  running = null;
  byId("speed").textContent = "";
  answer.wantsResults = answer.toolCalls.length > 0 && !answer.error;
  save();
  followed(showAll);
  announce(answer.error ? "" : answer.content || (answer.wantsResults ? "The model calls a tool." : "The answer is empty."));
  if (keyProblem) openSettings(keyProblem, () => { loadModel(); retry(); });
}

// ---- what people do

function send() {
  const text = input.value.trim();
  if (!text || running) return;
  if (editing >= 0) messages.length = editing;
  editing = -1;
  for (const message of messages) message.wantsResults = false;
  messages.push({ role: "user", content: text });
  input.value = "";
  fitInput();
  save();
  showAll();
  log.scrollTop = log.scrollHeight;
  answerNow();
}

function retry() {
  if (running) return;
  const last = messages.length - 1;
  if (last < 0) return;
  if (messages[last].role === "assistant") messages.pop();
  answerNow();
}

function edit() {
  editing = lastIndexOf("user");
  if (editing < 0 || running) return;
  input.value = messages[editing].content;
  fitInput();
  showAll();
  input.focus();
}

function cancelEdit() {
  editing = -1;
  input.value = "";
  fitInput();
  showAll();
  input.focus();
}

function sendResults() {
  const answer = messages[messages.length - 1];
  const fields = [...list.querySelectorAll(".tool-answer")];
  answer.wantsResults = false;
  answer.toolCalls.forEach((call, at) =>
    messages.push({ role: "tool", tool_call_id: call.id, content: fields[at]?.value ?? "" }));
  save();
  answerNow();
}

async function copy(node) {
  try {
    await navigator.clipboard.writeText(node.copied());
    node.textContent = "Copied";
  } catch {
    // Over plain HTTP from another machine a browser has no clipboard for us; the text can still be selected.
    const field = document.createElement("textarea");
    field.value = node.copied();
    document.body.append(field);
    field.select();
    node.textContent = document.execCommand("copy") ? "Copied" : "Not copied";
    field.remove();
    node.focus();
  }
  announce(node.textContent);
  setTimeout(() => { node.textContent = "Copy"; }, 1500);
}

function newChat() {
  running?.abort();
  if (messages.length) kept.set(kPrevious, JSON.stringify(messages));
  messages = [];
  editing = -1;
  save();
  showAll();
  input.focus();
}

function bringBack() {
  messages = stored(kPrevious);
  kept.remove(kPrevious);
  save();
  showAll();
  log.scrollTop = log.scrollHeight;
  input.focus();
}

function stop() {
  running?.abort();
  input.focus();
}

const kActions = { edit, retry, "send-results": sendResults };

function startListening() {
  byId("composer").addEventListener("submit", (event) => { event.preventDefault(); send(); });
  input.addEventListener("input", fitInput);
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); send(); }
    if (event.key === "ArrowUp" && !input.value && !running) { event.preventDefault(); edit(); }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || byId("settings").open) return;
    if (running) stop();
    else if (editing >= 0) cancelEdit();
  });
  list.addEventListener("click", (event) => {
    const node = event.target.closest("button");
    if (!node) return;
    if (node.copied) copy(node);
    else kActions[node.dataset.action]?.();
  });
  byId("stop").addEventListener("click", stop);
  byId("new-chat").addEventListener("click", newChat);
  byId("bring-back").addEventListener("click", bringBack);
  byId("cancel-edit").addEventListener("click", cancelEdit);
}

async function loadModel() {
  try {
    const model = (await (await request("/v1/models")).json()).data[0];
    byId("model").textContent = model.id;
    document.title = `${model.id} · Fourfold`;
    contextLimit = model.max_model_len ?? 0;
    showContext();
  } catch (problem) {
    if (problem.status === 401) openSettings(problem.message, loadModel);
    else byId("model").textContent = problem.message;
  }
}

// An answer that is being written when the page goes away ends with it.
addEventListener("pagehide", () => {
  if (!running || !messages.length) return;
  messages[messages.length - 1].finish = "stopped";
  save();
});
startSettings();
startListening();
showAll();
log.scrollTop = log.scrollHeight;
loadModel();
