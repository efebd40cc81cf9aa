// Speaks to the server that gave the page: the key, JSON answers, and answers that come in pieces.

// Without storage (a browser may forbid it) everything works until the page is left.
function remembered(storage) {
  const memory = new Map();
  const attempt = (action, otherwise) => { try { return action(storage()); } catch { return otherwise(); } };
  return {
    get: (name) => memory.get(name) ?? attempt((box) => box.getItem(name), () => null),
    // What does not fit any more (a quota) is remembered here, and what was stored before it goes: it would come back
    // as if nothing had been said since.
    set: (name, text) => attempt((box) => { box.setItem(name, text); memory.delete(name); }, () => {
      memory.set(name, text);
      attempt((box) => box.removeItem(name), () => null);
    }),
    names: () => attempt((box) => Object.keys(box), () => []),
    remove: (name) => { memory.delete(name); attempt((box) => box.removeItem(name), () => null); },
  };
}
export const kept = remembered(() => localStorage);
export const tabOnly = remembered(() => sessionStorage);

const kKey = "fourfold.key";
export const key = {
  get: () => tabOnly.get(kKey) ?? "",
  set: (text) => (text ? tabOnly.set(kKey, text) : tabOnly.remove(kKey))
};

export class ServerError extends Error {
  // status: of HTTP, 0 where there was no answer; code: OpenAI's word for it; retrySeconds: when the server wants
  // to be asked again.
  constructor(message, { status = 0, code = "", retrySeconds = 0 } = {}) {
    super(message);
    Object.assign(this, { status, code, retrySeconds });
  }
}

// The server's own words, in OpenAI's shape; a proxy in between may answer with something else.
async function errorOf(response) {
  const { status } = response;
  const text = await response.text();
  const retrySeconds = Number(response.headers.get("Retry-After")) || 0;
  try {
    const { message, code } = JSON.parse(text).error;
    if (typeof message === "string")
      return new ServerError(message, { status, code: String(code ?? ""), retrySeconds });
  } catch { /* not JSON */ }
  return new ServerError(`${status} ${response.statusText}: ${text.slice(0, 300)}`, { status, retrySeconds });
}

export async function request(path, options = {}) {
  const headers = { ...(options.body ? { "Content-Type": "application/json" } : {}),
    ...(key.get() ? { Authorization: "Bearer " + key.get() } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new ServerError("The server cannot be reached. Is it still running?");
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

// The data of each server-sent event, as it comes.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      buffer += value;
      const lines = buffer.split(/\r?\n/);
      buffer = lines.pop();
      for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

export async function postJson(path, body) {
  return (await request(path, { method: "POST", body: JSON.stringify(body) })).json();
}

// Runs one chat completion and hands over each piece's JSON. Ends normally only when the server said that it is done.
export async function streamChat(body, signal, take) {
  const response = await request("/v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal });
  for await (const data of events(response)) {
    if (data === "[DONE]") return;
    if (!data) continue;
    const piece = JSON.parse(data);
    if (piece.error) throw new ServerError(piece.error.message ?? JSON.stringify(piece.error));
    take(piece);
  }
  throw new ServerError("The connection ended before the answer did.");
}
