// The settings of an answer: which there are, what they may be, and what of them is sent. Empty ones are not sent: then the
// server's defaults hold, which are the model's own.
export const kNumbers = [
  { id: "temperature", field: "temperature", title: "Temperature", min: 0, max: 100, step: .05, hint: "0 always takes the most probable token" },
  { id: "top-p", field: "top_p", title: "Top P", min: .001, max: 1, step: .01, hint: "the most probable tokens up to this share" },
  { id: "top-k", field: "top_k", title: "Top K", min: 0, max: 2147483647, step: 1, whole: true, hint: "this many tokens at most; 0 for all" },
  { id: "min-p", field: "min_p", title: "Min P", min: 0, max: 1, step: .01, hint: "tokens at least this share of the best one" },
  { id: "presence-penalty", field: "presence_penalty", title: "Presence penalty", min: -2, max: 2, step: .1, hint: "against words that were used" },
  { id: "frequency-penalty", field: "frequency_penalty", title: "Frequency penalty", min: -2, max: 2, step: .1,
    hint: "the more, the oftener they were used" },
  { id: "repetition-penalty", field: "repetition_penalty", title: "Repetition penalty", min: .01, max: 100, step: .01,
    hint: "1 does nothing; the prompt counts too" },
  { id: "seed", field: "seed", title: "Seed", min: Number.MIN_SAFE_INTEGER, max: Number.MAX_SAFE_INTEGER, step: 1, whole: true,
    hint: "the same seed gives the same answer" },
  { id: "max-tokens", field: "max_completion_tokens", title: "Longest answer", min: 1, max: 2147483647, step: 1, whole: true,
    hint: "in tokens; empty: what fits" },
];
export const kTexts = ["system", "stop-strings", "tools"];
export const kThinking = "thinking";
// All that a chat may have of its own.
export const kAnswerFields = [...kNumbers.map(({ id }) => id), ...kTexts, kThinking];

const kMostStops = 64;
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
  for (const id of kTexts) if ((values[id] ?? "").length > kLongestText) return `${id}: longer than ${kLongestText} characters.`;
  if (values["stop-strings"] && stopsOf(values["stop-strings"]).length > kMostStops) return `Stop strings: at most ${kMostStops}.`;
  if (values.thinking && !["on", "off"].includes(values.thinking)) return `Thinking: ${values.thinking} is neither on nor off.`;
  return values.tools ? problemOfTools(values.tools) : "";
}

// Known fields that are texts; others are left out.
export function knownFields(values) {
  return Object.fromEntries(kAnswerFields.filter((id) => typeof values?.[id] === "string" && values[id]).map((id) => [id, values[id]]));
}
