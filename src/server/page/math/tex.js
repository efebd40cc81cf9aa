// A formula in TeX's words becomes a <math> element; one that cannot be read is shown as it was written, with the
// reason.
import { wholeFormula } from "/page/math/environments.js";
import { math, MathError } from "/page/math/nodes.js";
import { Parser } from "/page/math/parser.js";

export function mathNode(tex, display) {
  try {
    const nodes = wholeFormula(new Parser(tex));
    return math(
      "math", { ...(display ? { display: "block" } : {}), alttext: tex.trim() }, math("mrow", {}, ...nodes));
  } catch (problem) {
    // The parser bounds its depth; whose stack is smaller still gets a formula that is not shown, and not a dead page.
    if (!(problem instanceof MathError || problem instanceof RangeError)) throw problem;
    const node = document.createElement("code");
    node.className = "tex-error";
    node.textContent = tex.trim();
    node.title = `Not shown as a formula: ${problem.message}.`;
    return node;
  }
}
