// Footnotes: their marks are numbered in the order in which they come, and the notes stand below the text.
import { element } from "/page/dom.js";

let sections = 0;

function markNode(mark, count, id, again) {
  const link =
    element("a", { href: `#${id}`, textContent: String(count), id: `${id}-mark${again ? `-${again}` : ""}` });
  link.setAttribute("aria-label", `Footnote ${count}`);
  mark.replaceChildren(link);
  mark.classList.add("known");
}

function backLink(id, count) {
  const link = element("a", { href: `#${id}-mark`, className: "note-back", textContent: "↩" });
  link.setAttribute("aria-label", `Back to the mark of footnote ${count}`);
  return link;
}

// Numbers what is in a text whose blocks are `blocks`; section is what an earlier call made. Returns the section,
// or null.
export function numberNotes(node, blocks, section) {
  const notes = new Map();
  for (const { note } of blocks) if (note && !notes.has(note.label)) notes.set(note.label, note);
  if (!notes.size && !section) return null;
  section ??= element("section", { className: "footnotes", id: `notes-${++sections}` });
  section.setAttribute("aria-label", "Footnotes");
  const numbers = new Map();
  for (const mark of node.querySelectorAll(".footnote-mark")) {
    const { label } = mark.dataset;
    if (!notes.has(label) || section.contains(mark)) continue;
    const seen = numbers.get(label);
    if (!seen) numbers.set(label, { count: numbers.size + 1, marks: 1 });
    else ++seen.marks;
    const { count, marks } = numbers.get(label);
    markNode(mark, count, `${section.id}-${count}`, marks - 1);
  }
  // Notes that nothing refers to come last, so that nothing is lost.
  for (const label of notes.keys())
    if (!numbers.has(label)) numbers.set(label, { count: numbers.size + 1, marks: 0 });
  section.replaceChildren(element("ol", {},
    ...[...numbers].map(
      ([label, { count, marks }]) => element("li", { id: `${section.id}-${count}` }, ...notes.get(label).nodes,
        ...(marks ? [backLink(`${section.id}-${count}`, count)] : [])))));
  node.append(section);
  return section;
}
