"""Markdown to nodes, in the browser: what each form becomes, and that no text makes it slow or loses characters."""
import page_test

RENDER = """
return import("/page/markdown.js").then(({ renderInto }) => arguments[0].map((text) => {
  const node = document.createElement("div");
  renderInto(node, text);
  return node;
}).map((node) => node[arguments[1]]));
"""

CASES = [
    ("plain & <b>text</b>", "<p>plain &amp; &lt;b&gt;text&lt;/b&gt;</p>"),
    ("one\ntwo  \nthree\n\nfour", "<p>one\ntwo  <br>three</p><p>four</p>"),
    ("# One\n### Three #", "<h3>One</h3><h5>Three</h5>"),
    ("**bold** *em* ***both*** ~~gone~~", "<p><strong>bold</strong> <em>em</em> <strong><em>both</em></strong> <s>gone</s></p>"),
    ("snake_case_name and 2 * 3 * 4", "<p>snake_case_name and 2 * 3 * 4</p>"),
    ("`a*b*` and ``c`d``", "<p><code>a*b*</code> and <code>c`d</code></p>"),
    (r"\*not\* a `\`", r"<p>*not* a <code>\</code></p>"),
    ("- a\n- b\n  - c\n\n1) x", "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul><ol start=\"1\"><li>x</li></ol>"),
    ("3. three\n4. four", '<ol start="3"><li>three</li><li>four</li></ol>'),
    ("> a\n> - b", "<blockquote><p>a</p><ul><li>b</li></ul></blockquote>"),
    ("a\n\n---\nb", "<p>a</p><hr><p>b</p>"),
    ("|a|b|\n|-|-|\n|1|`2`|\nend", '<div class="table"><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1'
     "</td><td><code>2</code></td></tr></tbody></table></div><p>end</p>"),
    ("see https://example.org/a_b_c.", '<p>see <a href="https://example.org/a_b_c" rel="noopener noreferrer" '
     'target="_blank">https://example.org/a_b_c</a>.</p>'),
    ("[a](javascript:alert(1)) ![b](data:x)", "<p><span>a</span> <span>b</span></p>"),
    ("half **open and `code", "<p>half **open and `code</p>"),
]
# Quadratic or worse would take minutes.
HOSTILE = ["*a " * 60000, "**a " * 60000, "_a" * 60000, "[" * 100000, "[a](" * 40000, "> " * 20000 + "x", "|" * 100000,
           " ".join("`" * (1 + at % 900) for at in range(2000)), "\n".join(" " * at + "- x" for at in range(1000)),
           "```js\n" + "'" * 29000, "```c\n" + "/*" * 14000, "~~~\n" + "x\n" * 50000]


class Markdown(page_test.PageTest):
    def render(self, texts, what="innerHTML"):
        return self.browser.run(RENDER, texts, what)

    def test_each_form(self):
        for (text, wanted), shown in zip(CASES, self.render([text for text, _ in CASES])):
            self.assertEqual(wanted, shown, text)

    def test_code_keeps_every_character(self):
        code = "def f(x):\n    '''doc # no\n    '''\n    return \"a\\\"b\" + `x` // 2  # <end>\n\n\tx = 0x1F\n"
        for language in ("python", "c++", "sql", "sh", "json", "unknown", ""):
            [shown] = self.browser.run(
                "return import('/page/highlight.js').then(({ highlight }) => "
                "[highlight(arguments[0], arguments[1]).map((node) => node.textContent).join('')])", code, language)
            self.assertEqual(code, shown, language)

    def test_coming_in_pieces_ends_in_the_same(self):
        text = "\n\n".join(text for text, _ in CASES) + "\n```python\nx = 1\n```\nend"
        shown = self.browser.run("""
            return import("/page/markdown.js").then(({ renderInto }) => {
              const [node, whole] = [document.createElement("div"), document.createElement("div")];
              for (let length = 1; length <= arguments[0].length; ++length) renderInto(node, arguments[0].slice(0, length));
              renderInto(whole, arguments[0]);
              return [node.innerHTML, whole.innerHTML];
            });""", text)
        self.assertEqual(shown[1], shown[0])

    def test_no_text_makes_it_slow(self):
        for length, text in zip(self.render(HOSTILE, "textContent"), HOSTILE):
            self.assertGreater(len(length), 0, text[:20])


if __name__ == "__main__":
    page_test.main()
