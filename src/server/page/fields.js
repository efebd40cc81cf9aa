// The settings of an answer: which there are, what they may be, and what of them is sent. Empty ones are not sent:
// then the server's defaults hold, which are the model's own. [id and, with underscores, the API's name; title;
// least; most; step; what it does; what an empty one says]. Bounds are the server's (base/sampling_limits.h), which
// settings_test.py compares.
const kWhole = 2147483647;
export const kNumbers = [
  ["temperature", "Temperature", 0, 100, .05, "0 always takes the most probable token"],
  ["top-p", "Top P", .001, 1, .01, "the most probable tokens up to this share"],
  ["top-k", "Top K", 0, kWhole, 1, "this many tokens at most; 0 for all"],
  ["min-p", "Min P", 0, 1, .01, "tokens at least this share of the best one"],
  ["presence-penalty", "Presence penalty", -2, 2, .1, "against words that were used"],
  ["frequency-penalty", "Frequency penalty", -2, 2, .1, "the more, the oftener they were used"],
  ["repetition-penalty", "Repetition penalty", .01, 100, .01, "1 does nothing; the prompt counts too"],
  ["seed", "Seed", Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER, 1, "the same seed gives the same answer", "any"],
  ["max-tokens", "Longest answer", 1, kWhole, 1, "in tokens", "what fits"],
].map(([id, title, min, max, step, hint, empty = "the model's"]) => ({ id, title, min, max, step, hint, empty,
  whole: step === 1,
  field: id === "max-tokens" ? "max_completion_tokens" : id.replace("-", "_") }));
export const kTexts = ["system", "stop-strings", "tools"];
export const kThinking = "thinking";
// All that a chat may have of its own.
export const kAnswerFields = [...kNumbers.map(({ id }) => id), ...kTexts, kThinking];

export const kMostStops = 64;
const kLongestText = 1 << 20;

// One stop string a line; \n, \t and \\ as in most languages.
export const stopsOf = (text) => text.split("\n").filter(Boolean).map((line) =>
  line.replace(/\\([nt\\])/g, (_, letter) => ({ n: "\n", t: "\t", "\\": "\\" })[letter]));

// Fields of a chat completion.
export function requestFields(values) {
  const fields = {};
  for (const { id, field } of kNumbers) if (values[id]) fields[field] = Number(values[id]);
  if (values["stop-strings"]) fields.stop = stopsOf(values["stop-strings"]);
  if (values.thinking) fields.chat_template_kwargs = { enable_thinking: values.thinking === "on" };
  if (values.tools) fields.tools = JSON.parse(values.tools);
  return fields;
}

function problemOfNumber({ title, min, max, whole }, text) {
  const value = Number(text);
  if (!Number.isFinite(value)) return `${title}: ${text} is no number.`;
  if (whole && !Number.isInteger(value)) return `${title}: ${text} is no whole number.`;
  return value < min || value > max ? `${title}: ${text} is not between ${min} and ${max}.` : "";
}

function problemOfTools(text) {
  try {
    return Array.isArray(JSON.parse(text)) ? "" : "Tools: this is JSON, but not a list.";
  } catch (problem) { return `Tools: ${problem.message}`; }
}

// What is wrong with values, in a sentence, or nothing.
export function problemOf(values) {
  for (const number of kNumbers) {
    const problem = values[number.id] ? problemOfNumber(number, values[number.id]) : "";
    if (problem) return problem;
  }
  for (const id of kTexts)
    if ((values[id] ?? "").length > kLongestText) return `${id}: longer than ${kLongestText} characters.`;
  if (values["stop-strings"] && stopsOf(values["stop-strings"]).length > kMostStops)
    return `Stop strings: at most ${kMostStops}.`;
  if (values.thinking && !["on", "off"].includes(values.thinking))
    return `Thinking: ${values.thinking} is neither on nor off.`;
  return values.tools ? problemOfTools(values.tools) : "";
}

// Known fields that are texts; others are left out.
export function knownFields(values) {
  return Object.fromEntries(
    kAnswerFields.filter((id) => typeof values?.[id] === "string" && values[id]).map((id) => [id, values[id]]));
}
