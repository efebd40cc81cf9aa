// The status page: asks /status.json once a second while it is looked at, and /metrics while they are unfolded.
import { key, request } from "/page/api.js";
import { byId, element, number } from "/page/dom.js";

const kSamples = 120;
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const percent = (part, whole) => (whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : "–");
const bytes = (value) => compact.format(value).replace(/[KMBT]?$/, (unit) => ` ${{ K: "k", B: "G" }[unit] ?? unit}B`);
const seconds = (value) => (value >= 1 ? `${value.toFixed(1)} s` : `${(1000 * value).toFixed(0)} ms`);

// Nodes that exist are kept and only their text changes: a screen reader or a selection is not disturbed.
function showPairs(list, pairs) {
  for (const [title, value, detail = ""] of pairs) {
    let node = [...list.children].find((child) => child.firstChild.textContent === title);
    if (!node) {
      node = element("div", {}, element("dt", { textContent: title }), element("dd", {}, "", element("small")));
      list.append(node);
    }
    node.lastChild.firstChild.textContent = `${value} `;
    node.lastChild.lastChild.textContent = detail;
  }
}

function useNode(title) {
  const bar = element("span", { className: "bar" }, element("span"));
  bar.setAttribute("role", "meter");
  bar.setAttribute("aria-label", title);
  bar.setAttribute("aria-valuemin", 0);
  const node = element("div", { className: "use" }, element("span", { textContent: title }), bar,
    element("span", { className: "muted" }));
  node.dataset.title = title;
  return node;
}

// The titles are the server's, the same every time; only what is used changes.
function showUses(parent, uses) {
  for (const [title, used, limit, text] of uses) {
    let node = [...parent.children].find((child) => child.dataset.title === title);
    if (!node) parent.append(node = useNode(title));
    const [, bar, words] = node.children;
    bar.firstChild.style.width = `${limit > 0 ? Math.min(100, 100 * used / limit) : 0}%`;
    bar.setAttribute("aria-valuemax", limit);
    bar.setAttribute("aria-valuenow", used);
    bar.setAttribute("aria-valuetext", text);
    words.textContent = text;
  }
}

function showList(list, lines, none) {
  if (list.dataset.shown === lines.join("\n")) return;
  list.dataset.shown = lines.join("\n");
  list.replaceChildren(...(lines.length ? lines : [none]).map((line) => element("li", { textContent: line })));
}

const speeds = [];
function showSpeed(value) {
  speeds.push(value);
  if (speeds.length > kSamples) speeds.shift();
  const top = Math.max(1, ...speeds);
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const x = (at) => 600 * (kSamples - speeds.length + at) / (kSamples - 1);
  line.setAttribute("points", speeds.map((speed, at) => `${x(at).toFixed(1)},${(58 - 54 * speed / top).toFixed(1)}`).join(" "));
  byId("speed-line").replaceChildren(line);
  byId("speed-line").setAttribute("aria-label", `Tokens a second: ${value.toFixed(1)} now, ${top.toFixed(1)} at most`);
}

const upTo = (value) => (value > 0 ? `≤ ${seconds(value)}` : "–");
const latency = (name, all) => [upTo(all[name + "_p50"]), all[name + "_p99"] > 0 ? `99 %: ${upTo(all[name + "_p99"])}` : ""];

function showNow({ sequences, tokens, mtp, latency: times }) {
  showPairs(byId("now"), [
    ["Running", number.format(sequences.running), `of ${number.format(sequences.running_max)}`],
    ["Waiting", number.format(sequences.waiting), `of ${number.format(sequences.waiting_max)}`],
    ["Tokens a second", tokens.per_second.toFixed(1)],
    ["Drafts a step", number.format(mtp.drafts)],
    ["First token", ...latency("first_token", times)],
    ["Between tokens", ...latency("between_tokens", times)],
  ]);
  showSpeed(tokens.per_second);
}

function showMemory({ pages, anchors, memory, process }) {
  const of = (count) => `${number.format(count)} of ${number.format(pages.all)} pages`;
  const all = memory.reduce((sum, use) => sum + use.bytes, 0);
  showUses(byId("memory"), [
    ["Keys and values, running", pages.used, pages.all, of(pages.used)],
    ["Keys and values, prefix cache", pages.cached, pages.all, of(pages.cached)],
    ["Recurrent states, prefix cache", anchors.bytes, anchors.bytes_max,
      `${number.format(anchors.count)} anchors, ${bytes(anchors.bytes)} of ${bytes(anchors.bytes_max)}`],
    ...memory.map(({ what, bytes: size }) => [`Set aside: ${what}`, size, all, bytes(size)]),
  ]);
  byId("process").textContent = `The process holds ${bytes(process.resident_bytes)} and ${number.format(process.open_files)} open files.`;
}

function showSince({ tokens, mtp, requests, steps, http }) {
  showPairs(byId("since"), [
    ["Prompt tokens", compact.format(tokens.prompt)],
    ["Answer tokens", compact.format(tokens.answer)],
    ["Prefix hit rate", percent(tokens.cached, tokens.prompt), "of prompt tokens"],
    ["Draft acceptance", percent(mtp.accepted, mtp.verified)],
    ["Finished", number.format(requests.finished)],
    ["Cancelled", number.format(requests.cancelled)],
    ["Failed", number.format(requests.failed)],
    ["Refused", number.format(requests.refused)],
    ["Preempted", number.format(requests.preempted)],
    ["Overhead of a step", percent(steps.overhead_seconds, steps.seconds + steps.overhead_seconds)],
    ["Connections", number.format(http.connections), "now"],
  ]);
}

function show(status) {
  const { model, program } = status;
  byId("model").textContent = [model.name, program.device, program.version].filter(Boolean).join(" · ");
  showNow(status);
  showMemory(status);
  showSince(status);
  showList(byId("notices"), status.notices, "None.");
  showList(byId("kernels"), status.kernels, "None reported.");
}

function showProblem(problem) {
  const keyWanted = problem?.status === 401;
  byId("key-form").hidden = !keyWanted;
  byId("problem").hidden = !problem || keyWanted;
  byId(keyWanted ? "key-wanted" : "problem").textContent = problem?.message ?? "";
}

async function poll() {
  try {
    show(await (await request("/status.json")).json());
    if (byId("metrics").parentElement.open) byId("metrics").textContent = await (await request("/metrics")).text();
    showProblem(null);
  } catch (problem) {
    showProblem(problem);
    if (problem.status === 401) return;  // again once there is a key
  }
  // A hidden page asks nothing.
  if (document.hidden) await new Promise((resume) => document.addEventListener("visibilitychange", resume, { once: true }));
  setTimeout(poll, 1000);
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key.set(byId("api-key").value.trim());
  poll();
});
poll();
