// Colours for code: comments, strings, numbers, keywords and called names, by one pattern a language family. It need
// not be right everywhere; it must keep every character, and never make anything but text and spans.

const words = (text) => new Set(text.split(" "));

const kCommon = "break case catch class const continue default do else enum export extends false finally for if " +
  "import in new null return static super switch this throw true try void while ";
const kFamilies = {
  c: { line: "//", block: true, words: words(kCommon + "async auto await bool char constexpr delete double extern float fn " +
    "func impl inline int interface let long match mut namespace nullptr operator override package private protected pub " +
    "public self short signed sizeof struct template trait type typedef typename typeof union unsigned use using var " +
    "virtual yield __global__ __device__ __shared__") },
  python: { line: "#", triple: true, words: words("and as assert async await break case class continue def del elif else " +
    "except False finally for from global if import in is lambda match None nonlocal not or pass raise return True try " +
    "while with yield self print len range int str float list dict set tuple") },
  shell: { line: "#", words: words("if then else elif fi for while until do done case esac in function return local export " +
    "set unset source echo cd exit sudo") },
  sql: { line: "--", block: true, fold: true, words: words("select from where and or not null insert into values update " +
    "set delete create table index drop alter join left inner outer on group by order having limit as distinct union all " +
    "case when then else end exists in is like between primary key") },
  data: { line: "#", words: words("true false null yes no on off") },
};
const kLanguages = {
  c: "c cpp c++ h hpp cc cu cuda java js jsx javascript ts tsx typescript rust rs go kotlin swift cs csharp php zig css",
  python: "python py python3 ipython",
  shell: "sh bash shell zsh console make makefile dockerfile cmake",
  sql: "sql sqlite postgres mysql",
  data: "json yaml yml toml ini",
};
const familyOf = new Map(Object.entries(kLanguages).flatMap(([family, names]) =>
  names.split(" ").map((name) => [name, kFamilies[family]])));

const escaped = (text) => text.replace(/[^\w\s]/g, "\\$&");

function patternOf(family) {
  if (family.pattern) return family.pattern;
  const comments = [`${family.line === "#" ? "(?<![\\w$&])" : ""}${escaped(family.line)}[^\\n]*`];
  if (family.block) comments.push("/\\*[\\s\\S]*?(?:\\*/|$)");
  const strings = ['"(?:[^"\\\\\\n]|\\\\.)*"?', "'(?:[^'\\\\\\n]|\\\\.)*'?", "`(?:[^`\\\\]|\\\\.)*`?"];
  if (family.triple) strings.unshift('"""[\\s\\S]*?(?:"""|$)', "'''[\\s\\S]*?(?:'''|$)");
  family.pattern = new RegExp([
    `(?<comment>${comments.join("|")})`,
    `(?<string>${strings.join("|")})`,
    "(?<number>\\b(?:0[xX][\\da-fA-F_']+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\w*)",
    "(?<word>[A-Za-z_$][\\w$]*)",
  ].join("|"), "g");
  return family.pattern;
}

function classOf(match, family, code) {
  const { comment, string, number, word } = match.groups;
  if (comment !== undefined) return "comment";
  if (string !== undefined) return "string";
  if (number !== undefined) return "number";
  if (family.words.has(family.fold ? word.toLowerCase() : word)) return "keyword";
  return code[match.index + word.length] === "(" ? "name" : "";
}

const kLongest = 200000;  // longer code stays plain

// Shows code in a node, in colours. Of code that grows only the end is read again: from the last line that begins
// outside of every comment and string.
export class Colours {
  constructor(node, language) {
    this.node = node;
    this.family = familyOf.get(language.toLowerCase());
    this.code = "";
    this.from = 0;   // where reading goes on
    this.kept = 0;   // nodes before that
  }

  show(code) {
    if (!code.startsWith(this.code)) {
      this.from = this.kept = 0;
      this.node.replaceChildren();
    }
    this.code = code;
    while (this.node.childNodes.length > this.kept) this.node.lastChild.remove();
    if (this.family && code.length <= kLongest) this.read(code);
    else this.node.append(document.createTextNode(code));
  }

  read(code) {
    const lastLine = code.lastIndexOf("\n") + 1;
    const pattern = patternOf(this.family);
    pattern.lastIndex = this.from;
    let done = this.from;
    const nodes = [];
    const addText = (end) => { if (end > done) nodes.push(document.createTextNode(code.slice(done, end))); };
    for (let match = pattern.exec(code); match; match = pattern.exec(code)) {
      if (!match[0]) { ++pattern.lastIndex; continue; }
      const end = match.index + match[0].length;
      // The last line begins in plain text: from there it is read again when more comes.
      if (done < lastLine && match.index >= lastLine) {
        addText(lastLine);
        done = Math.max(done, lastLine);
        this.settle(nodes, lastLine);
      }
      const name = classOf(match, this.family, code);
      if (!name) continue;
      addText(match.index);
      const span = document.createElement("span");
      span.className = "hl-" + name;
      span.textContent = match[0];
      nodes.push(span);
      done = end;
    }
    addText(code.length);
    this.node.append(...nodes);
  }

  settle(nodes, from) {
    this.node.append(...nodes.splice(0));
    this.from = from;
    this.kept = this.node.childNodes.length;
  }
}
