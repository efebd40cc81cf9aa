// Text files that go with a message: read, checked, shown as chips, and folded into what is sent.
import { postJson } from "/page/api.js";
import { element, icon, iconButton, number, plural } from "/page/dom.js";

const kMostBytes = 32 << 20;  // as long as a request may be, unless the server was told otherwise
const kMost = 20;

const kLanguages = { py: "python", js: "javascript", ts: "typescript", rs: "rust", sh: "bash", yml: "yaml", h: "c",
  hpp: "cpp", cc: "cpp", cu: "cpp", md: "markdown", htm: "html" };
const languageOf = (name) => {
  const ending = /\.(\w{1,12})$/.exec(name)?.[1].toLowerCase() ?? "";
  return kLanguages[ending] ?? ending;
};

const thousands = (count) => number.format(Math.round(count / 100) / 10);
const sizeText = ({ length }) => (length < 1000 ? plural(length, "character") : `${thousands(length)} k characters`);

// How many tokens a text has only the server knows; where it does not say, it will when the message is sent.
async function tokensOf(text) {
  try { return (await postJson("/tokenize", { prompt: text })).count; } catch { return 0; }
}

async function readFile(file, contextTokens) {
  if (file.size > kMostBytes) throw new Error(`${file.name} has ${plural(file.size, "byte")}; at most ${kMostBytes >> 20} MiB.`);
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error(`${file.name} is not text in UTF-8; only text files can be attached.`);
  }
  if (text.includes("\0")) throw new Error(`${file.name} is not a text file; only text files can be attached.`);
  if (!text.trim()) throw new Error(`${file.name} is empty.`);
  // A byte is a token at most.
  const tokens = contextTokens && file.size > contextTokens ? await tokensOf(text) : 0;
  if (tokens > contextTokens) {
    const limit = plural(contextTokens, "token");
    throw new Error(`${file.name} has ${plural(tokens, "token")}; the model's context of ${limit} cannot hold it.`);
  }
  return { name: file.name, text: text.replace(/\r\n?/g, "\n") };
}

// { added, problems }: what could be read, and a sentence for each that could not. There are `count` already.
export async function readFiles(files, count, contextTokens) {
  const [added, problems] = [[], []];
  for (const file of files) {
    if (count + added.length >= kMost) {
      problems.push(`At most ${kMost} files go with a message; ${file.name} was left out.`);
      continue;
    }
    try { added.push(await readFile(file, contextTokens)); } catch (problem) { problems.push(problem.message); }
  }
  return { added, problems };
}

// Text and files as the model gets them: each file in a fence that nothing inside it closes.
export function withFiles(text, attachments) {
  const parts = (attachments ?? []).map(({ name, text: content }) => {
    const longest = Math.max(2, ...[...content.matchAll(/`+/g)].map((match) => match[0].length));
    const fence = "`".repeat(longest + 1);
    return `File ${name}:\n\n${fence}${languageOf(name)}\n${content.replace(/\n$/, "")}\n${fence}`;
  });
  return [text, ...parts].filter(Boolean).join("\n\n");
}

// A chip that unfolds to the file's text; with a button that removes it, where it may be removed.
export function chip(attachment, at, removable) {
  const { name, text } = attachment;
  const label = element("span", { className: "chip" }, icon("file"),
    element("span", { className: "chip-name", textContent: name }),
    element("span", { className: "muted", textContent: sizeText(text) }));
  if (!removable) {
    return element(
      "details", { className: "file" }, element("summary", {}, label), element("pre", { textContent: text }));
  }
  const remove = iconButton("close", "remove-file", `Remove ${name}`);
  remove.dataset.at = at;
  label.append(remove);
  return label;
}
