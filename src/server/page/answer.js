// One answer: what is sent, the pieces as they come, the clock, and a server that wants to be asked later.
import { streamChat } from "/page/api.js";
import { withFiles } from "/page/attachments.js";
import { requestFields } from "/page/fields.js";

const kTries = 6;
const kLongestWait = 60;  // seconds

function asSent(message) {
  if (message.role === "tool") return { role: "tool", tool_call_id: message.toolCallId, content: message.content };
  if (message.role === "user") return { role: "user", content: withFiles(message.content, message.attachments) };
  if (!message.toolCalls?.length) return { role: message.role, content: message.content };
  return { role: "assistant", content: message.content, tool_calls: message.toolCalls.map((call) =>
    ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } })) };
}

// The messages of a path as the server gets them. Answers that came to nothing are left out.
export function sentMessages(path, settings) {
  const history =
    path.filter((message) => message.role !== "assistant" || message.content || message.toolCalls?.length);
  const first = settings.system ? [{ role: "system", content: settings.system }] : [];
  return [...first, ...history.map(asSent)];
}

export function requestBody(path, settings) {
  return { messages: sentMessages(path, settings), stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true }, ...requestFields(settings) };
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

function takeToolCalls(answer, pieces) {
  for (const piece of pieces) {
    const call = (answer.toolCalls[piece.index] ??= { id: "", name: "", arguments: "" });
    call.id ||= piece.id ?? "";
    call.name += piece.function?.name ?? "";
    call.arguments += piece.function?.arguments ?? "";
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

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    }, { once: true });
  });
}

// A busy server says when to ask again; the answer says so meanwhile.
async function waitFor(problem, answer, signal, changed) {
  for (let left = Math.min(kLongestWait, Math.ceil(problem.retrySeconds)); left > 0; --left) {
    answer.waiting = `${problem.message} Asking again in ${left} s.`;
    changed();
    await pause(1, signal);
  }
  answer.waiting = "";
}

// Fills an answer from the server; changed() after each piece. What goes wrong is in answer.error, with its status.
export async function fillAnswer(answer, body, signal, changed) {
  for (let tries = 1; ; ++tries) {
    const watch = new Stopwatch();
    try {
      await streamChat(body, signal, (piece) => {
        takePiece(answer, piece, watch);
        changed();
      });
      return;
    } catch (problem) {
      const busy = (problem.status === 503 || problem.status === 429) && problem.retrySeconds > 0 && tries < kTries;
      try {
        if (!busy) throw problem;
        await waitFor(problem, answer, signal, changed);
      } catch (end) {
        answer.waiting = "";
        if (end.name === "AbortError") answer.finish = "stopped";
        else Object.assign(answer, { error: end.message, errorStatus: end.status ?? 0, errorCode: end.code ?? "" });
        return;
      }
    }
  }
}
