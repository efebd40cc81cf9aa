// The status page: asks /status.json and /metrics once a second while it is looked at.
import { key, request } from "/page/api.js";
import { element } from "/page/markdown.js";

const kSamples = 120;
const byId = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en-US");
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

function showUses(parent, uses) {
  parent.replaceChildren(...uses.map(([title, used, limit, text]) => {
    const fill = element("span");
    fill.style.width = `${limit > 0 ? Math.min(100, 100 * used / limit) : 0}%`;
    const bar = element("span", { className: "bar" }, fill);
    bar.setAttribute("role", "meter");
    bar.setAttribute("aria-label", title);
    bar.setAttribute("aria-valuemin", 0);
    bar.setAttribute("aria-valuemax", limit);
    bar.setAttribute("aria-valuenow", used);
    bar.setAttribute("aria-valuetext", text);
    return element("div", { className: "use" }, element("span", { textContent: title }), bar,
      element("span", { className: "muted", textContent: text }));
  }));
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

// The bound that a share of a histogram's values does not exceed, from Prometheus text.
function quantile(text, name, share) {
  const buckets = [...text.matchAll(new RegExp(`^${name}_bucket\\{.*?le="([^"]+)"\\} (\\S+)$`, "gm"))]
    .map(([, bound, count]) => [Number(bound.replace("+Inf", "Infinity")), Number(count)]);
  const all = buckets.at(-1)?.[1] ?? 0;
  return all > 0 ? buckets.find(([, count]) => count >= share * all)[0] : null;
}

function quantiles(text, name) {
  const [middle, high] = [quantile(text, name, .5), quantile(text, name, .95)];
  const upTo = (value) => (value === Infinity ? "long" : `≤ ${seconds(value)}`);
  return middle === null ? ["–"] : [upTo(middle), `95 %: ${upTo(high)}`];
}

function show(status, metrics) {
  byId("model").textContent = [status.model, status.backend, status.device].filter(Boolean).join(" · ");
  const { drafts = {} } = status;
  showPairs(byId("now"), [
    ["Running", number.format(status.running), `of ${number.format(status.sequence_limit)}`],
    ["Waiting", number.format(status.waiting), `of ${number.format(status.queue_limit)}`],
    ["Tokens a second", status.tokens_per_second.toFixed(1)],
    ["Drafts a step", number.format(status.mtp)],
    ["First token", ...quantiles(metrics, "vllm:time_to_first_token_seconds")],
    ["Between tokens", ...quantiles(metrics, "vllm:inter_token_latency_seconds")],
  ]);
  showSpeed(status.tokens_per_second);
  const pages = (count) => `${number.format(count)} of ${number.format(status.page_count)} pages`;
  showUses(byId("memory"), [
    ["Keys and values, running", status.pages_used, status.page_count, pages(status.pages_used)],
    ["Keys and values, prefix cache", status.pages_cached, status.page_count, pages(status.pages_cached)],
    ["Recurrent states, prefix cache", status.anchor_bytes, status.anchor_byte_limit,
      `${number.format(status.anchors)} anchors, ${bytes(status.anchor_bytes)} of ${bytes(status.anchor_byte_limit)}`],
  ]);
  const steps = status.step_seconds + status.overhead_seconds;
  showPairs(byId("since"), [
    ["Prompt tokens", compact.format(status.prompt_tokens)],
    ["Answer tokens", compact.format(status.answer_tokens)],
    ["Prefix hit rate", percent(status.cached_tokens, status.prompt_tokens), "of prompt tokens"],
    ["Draft acceptance", percent(drafts.accepted, drafts.verified)],
    ["Finished", number.format(status.finished)],
    ["Cancelled", number.format(status.cancelled)],
    ["Failed", number.format(status.failed)],
    ["Refused", number.format(status.refused)],
    ["Preempted", number.format(status.preempted)],
    ["Overhead of a step", percent(status.overhead_seconds, steps)],
  ]);
  showList(byId("notices"), status.notices ?? [], "None.");
  showList(byId("kernels"), status.kernels ?? [], "None reported.");
  byId("metrics").textContent = metrics;
}

function showProblem(problem) {
  const keyWanted = problem?.status === 401;
  byId("key-form").hidden = !keyWanted;
  byId("problem").hidden = !problem || keyWanted;
  byId(keyWanted ? "key-wanted" : "problem").textContent = problem?.message ?? "";
}

async function poll() {
  try {
    const [status, metrics] = await Promise.all([request("/status.json"), request("/metrics")]);
    show(await status.json(), await metrics.text());
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
