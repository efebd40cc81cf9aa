"""Texts that nobody would write: none takes the page away, and none costs more than its length.

    hostile_test.py [unittest arguments]
"""
import json

import page_case
from page_case import PageTest

# Changes messages of the stored chats past the page: as a broken or newer version might have left them.
DAMAGE = """
const done = (request) => new Promise((resolve) => { request.onsuccess = () => resolve(request.result); });
return done(indexedDB.open("fourfold")).then(async (database) => {
  const table = database.transaction("messages", "readwrite").objectStore("messages");
  for (const message of await done(table.getAll())) await done(table.put({ ...message, ...arguments[0] }));
  database.close();
});
"""

# What is repeated, what stands before and what behind it. First, what has been slow; then one of each kind of pattern.
REPEATED = [
    ("# a", " ", "b"), ("# a", " #", "b"), ("# ", "#", " b"), ("~~~", "~", "`"), ("~~~", "a", "`"), ("```", " ", "a`"), ("a|\n", " ", "x"),
    ("a|\n|-|", " ", "x"), ("a|\n|", "-", "x"), ("[a](", "\t", "b"), ("[a](b", " ", "c"), ("[a](", "b", ""), ('[a](b "', " ", ""),
    ("$$a$$", " ", "b"), ("\\[a\\]", " ", "b"), ("", "a\n", ""), ("", "a  \n", ""), ("", "$$ ", "x"), ("", "- ", "x"), ("", " ", "x"),
    ("", "*a ", ""), ("", "**a ", ""), ("", "_a", ""), ("", "[", ""), ("", "[a](", ""), ("", "> ", "x"), ("", "|", ""), ("", "| ", "\n|-|"),
    ("~~~\n", "x\n", ""), ("", "$a ", ""), ("", "$$x\n", ""), ("", "\\(", ""), ("", "\\[a\n", ""), ("", "<sub>", ""), ("", "[^", ""),
    ("", "`` ` ", ""), ("", "<br ", ""), ("", "<https:", ""), ("https://a", ".", ""), ("", "\\", ""), ("", "#", ""), ("", "a_", ""),
    ("```js\n", "'", ""), ("```c\n", "/*", ""), ("```c\n", "1_", ""), ("```python\n", '"', ""), ("```js\n", "`\\", ""), ("```sh\n", "#a", ""),
    ("\\begin{align}\n", "\\begin{align}\n", ""), ("[^1]: a\n", "    a\n", ""), ("- a\n", "  - a\n", ""), ("1. ", "1. ", ""),
]
# Formulae have a length of their own that is never passed, so here they are repeated: at most 20,000 characters each.
FORMULAE = [
    ("\\ce{", "->[", "}"), ("\\ce{", "^{", ""), ("\\ce{", "_{", "}"), ("\\text{", "$", "}"), ("\\text{", "\\text ", "}"),
    ("\\hspace{", "1", "}"), ("\\begin{array}{", "p", "}"), ("", "1,000", ""), ("", "\\\\", "%"), ("", "\\sqrt[", ""), ("", "{", ""),
    ("", "!", ""), ("\\ce{", "->", "}"), ("\\left(", "+", "\\right)"), ("", "+&", ""),
]
# What is of two lengths: an input of four times the size must not be sixteen times the work.
SHAPES = {
    "a wide head and many short rows": lambda n: "|" * (n // 4) + "\n" + "-|" * (n // 4) + "\n" + "|\n" * (n // 8),
    "runs of backquotes": lambda n: " ".join("`" * (1 + at % 300) for at in range(n // 150)),
    "lists that step in": lambda n: "\n".join(" " * (at % 100) + "- x" for at in range(n // 50)),
    "notes and their marks": lambda n: "[^1]" * (n // 20) + "\n\n" + "\n".join(f"[^{at}]: x" for at in range(n // 40)),
    "prices": lambda n: "$5 aa " * (n // 6) + "x$",
}
SHORT, LONG = 25_000, 100_000  # characters

DRAW = """
return import("/page/markdown/render.js").then(({ renderInto }) => {
  const node = document.createElement("div");
  renderInto(node, arguments[0]);
  return [node.textContent.length, node.querySelector(".plain-text")?.title ?? ""];
});
"""


class Work(PageTest):
    """The browser's own count of a page's work, which a busy machine does not change; quadratic would be 16 times as much."""

    def setUp(self):
        super().setUp()
        self.browser.devtools("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds(self):
        metrics = self.browser.devtools("Performance.getMetrics", {})["metrics"]
        return next(entry["value"] for entry in metrics if entry["name"] == "TaskDuration")

    def cost(self, text):
        before = self.seconds()
        shown, problem = self.browser.run(DRAW, text)
        self.assertEqual("", problem, text[:20])
        return self.seconds() - before, shown

    def check(self, what, make):
        short, long = self.cost(make(SHORT))[0], self.cost(make(LONG))[0]
        self.assertLess(long, 8 * short + .3, f"{what}: {SHORT} characters {short:.3f} s, {LONG} {long:.3f} s")

    def test_1_no_text_is_more_work_than_its_length(self):
        for before, unit, behind in REPEATED:
            self.check((before, unit, behind), lambda n: before + unit * (n // len(unit)) + behind)
        for name, make in SHAPES.items():
            self.check(name, make)

    def test_2_no_formula_either(self):
        for before, unit, behind in FORMULAE:
            def make(n, length=5000):
                return f"$${before}{unit * (length // len(unit))}{behind}$$\n" * (n // length)
            self.check((before, unit, behind), make)
            short, long = self.cost(make(5000))[0], self.cost(make(19000, 19000))[0]
            self.assertLess(long, 8 * short + .1, f"{(before, unit, behind)}: a formula of 19000 characters {long:.3f} s, of 5000 {short:.3f} s")

    def test_3_a_table_keeps_its_form(self):
        self.assertLess(self.cost(SHAPES["a wide head and many short rows"](LONG))[0], 10)
        rows = self.browser.run("""
            return import("/page/markdown/render.js").then(({ renderInto }) => {
              const node = document.createElement("div");
              renderInto(node, "|a|b|c|\\n|-|-|-|\\n" + "|1|\\n".repeat(2000));
              return node.querySelectorAll("td").length;
            });""")
        self.assertEqual(3 * 2000, rows)


class Opened(PageTest):
    """A chat is opened by its address, as a reload does it: whatever is in it, the page goes on."""

    def bring(self, content):
        title = f"odd {len(content)} {content[2:6]}"  # the one before is still shown while this one is read
        messages = [{"id": "1", "role": "user", "content": "q"}, {"id": "2", "parent": "1", "role": "assistant", "content": content}]
        file = {"format": "fourfold-chats", "version": 1, "chats": [{"title": title, "messages": messages}]}
        self.put_files("#import-file", [("odd.json", json.dumps(file))])
        self.until(lambda: self.text("#title") == title, "the chat")

    def goes_on(self):
        self.assertEqual("yes", self.browser.run("return document.body.dataset.ready"))
        self.ask("hello")
        self.assertIn("You said: hello", self.answer())

    def test_1_formulae_without_end(self):
        for tex in (r"\vec", r"\sqrt", r"\not", r"\hat", r"\frac1"):
            content = f"$${tex * (19000 // len(tex))}x$$"
            self.bring(content)
            self.reload()
            self.assertEqual(content.strip("$"), self.text(".assistant .tex-error"))
        self.goes_on()

    def test_2_a_text_that_cannot_be_drawn_is_shown_as_it_is(self):
        text = "*a*\n\nb  c"
        self.bring(text)
        made = self.browser.devtools("Page.addScriptToEvaluateOnNewDocument", {"source": """
            const create = Document.prototype.createElement;
            Document.prototype.createElement = function (name) {
              if (name === "em") throw new RangeError("no more of these");
              return create.call(this, name);
            };"""})
        self.addCleanup(self.browser.devtools, "Page.removeScriptToEvaluateOnNewDocument", made)
        self.reload()
        self.assertEqual([text], self.texts(".assistant .plain-text"))
        self.assertEqual("Shown as plain text: no more of these",
                         self.browser.run("return document.querySelector('.plain-text').title"))
        self.goes_on()
        # While an answer grows, too, and back to nodes when it can be drawn.
        shown = self.browser.run("""
            return import("/page/markdown/render.js").then(({ renderInto }) => {
              const node = document.createElement("div");
              return ["a\\n\\n*b", "a\\n\\n*b*", "a\\n\\n*b* c", "d"].map((text) => { renderInto(node, text); return node.innerHTML; });
            });""")
        title = 'title="Shown as plain text: no more of these"'
        self.assertEqual(["<p>a</p><p>*b</p>", f'<p class="plain-text" {title}>a\n\n*b*</p>',
                          f'<p class="plain-text" {title}>a\n\n*b* c</p>', "<p>d</p>"], shown)

    def test_3_a_damaged_chat_is_left_for_a_new_one(self):
        self.bring("fine")
        self.browser.run(DAMAGE, {"attachments": 7})
        self.reload()
        self.until_text("#notice", "This chat cannot be opened: ")
        self.assertEqual(["New chat", 0], [self.text("#title"), self.count(".message")])
        self.assertEqual("", self.browser.run("return location.hash"))
        self.goes_on()


if __name__ == "__main__":
    page_case.main()
