"""Markdown to nodes, in the browser: what each form becomes, and that no character is lost."""
import re

import mock_server
import page_case

RENDER = """
return import("/page/markdown/render.js").then(({ renderInto }) => arguments[0].map((text) => {
  const node = document.createElement("div");
  renderInto(node, text);
  return node;
}).map((node) => node[arguments[1]]));
"""

COLOURS = """
return import("/page/markdown/highlight.js").then(({ Colours }) => {
  const [whole, grown] = [document.createElement("code"), document.createElement("code")];
  new Colours(whole, arguments[1]).show(arguments[0]);
  const colours = new Colours(grown, arguments[1]);
  for (let end = 0; end <= arguments[0].length; ++end) colours.show(arguments[0].slice(0, end));
  const spans = (node) => [...node.querySelectorAll("span")].map((span) => span.className + span.textContent).join("|");
  return [whole.textContent, grown.textContent, spans(whole) === spans(grown)];
});
"""

CASES = [
    ("plain & <b>text</b>", "<p>plain &amp; &lt;b&gt;text&lt;/b&gt;</p>"),
    ("one\ntwo  \nthree\n\nfour", "<p>one\ntwo  <br>three</p><p>four</p>"),
    ("# One\n### Three #", "<h3>One</h3><h5>Three</h5>"),
    ("# C# ##  \n####### no\n# #\n#no", "<h3>C#</h3><p>####### no</p><h3></h3><p>#no</p>"),
    ("``` a`b", "<p>``` a`b</p>"),
    ("a|b\n--|:-:\n\n|a|\n|-\n\n|a|\n| |\n\n|a|\n  |-|  ", '<div class="table"><table><thead><tr><th>a</th><th class="center">b</th></tr></thead>'
     "<tbody></tbody></table></div><p>|a|\n|-</p><p>|a|\n| |</p>"
     '<div class="table"><table><thead><tr><th>a</th></tr></thead><tbody></tbody></table></div>'),
    ("[a](  b  \"c\" ) [d](\n<e> )", "<p><span>a</span> <span>d</span></p>"),
    ("`a`  \nb", "<p><code>a</code>  <br>b</p>"),
    (
        "**bold** *em* ***both*** ~~gone~~",
        "<p><strong>bold</strong> <em>em</em> <strong><em>both</em></strong> <s>gone</s></p>",
    ),
    ("snake_case_name and 2 * 3 * 4", "<p>snake_case_name and 2 * 3 * 4</p>"),
    ("`a*b*` and ``c`d``", "<p><code>a*b*</code> and <code>c`d</code></p>"),
    (r"\*not\* a `\`", r"<p>*not* a <code>\</code></p>"),
    ("- a\n- b\n  - c\n\n1) x", "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul><ol start=\"1\"><li>x</li></ol>"),
    ("3. three\n4. four", '<ol start="3"><li>three</li><li>four</li></ol>'),
    ("> a\n> - b", "<blockquote><p>a</p><ul><li>b</li></ul></blockquote>"),
    ("a\n\n---\nb", "<p>a</p><hr><p>b</p>"),
    (
        "|a|b|\n|-|-|\n|1|`2`|\nend",
        '<div class="table"><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1'
        "</td><td><code>2</code></td></tr></tbody></table></div><p>end</p>",
    ),
    (
        "|a|b|c|d|\n|:-|:-:|-:|---|\n|1|2|3|\n",
        '<div class="table"><table><thead><tr><th>a</th><th class="center">b</th>'
        '<th class="right">c</th><th>d</th></tr></thead><tbody><tr><td>1</td><td class="center">2</td><td class="right">3</td>'
        "<td></td></tr></tbody></table></div>",
    ),
    (
        "- [x] done\n- [ ] not\n- [y] no box",
        '<ul><li class="task"><input type="checkbox" disabled="" aria-label="done">done</li>'
        '<li class="task"><input type="checkbox" disabled="" aria-label="not done">not</li><li>[y] no box</li></ul>',
    ),
    (
        "a<br>b H<sub>2</sub>O <sub onclick=1>x</sub> <kbd>K</kbd>",
        "<p>a<br>b H<sub>2</sub>O &lt;sub onclick=1&gt;x&lt;/sub&gt; <kbd>K</kbd></p>",
    ),
    ("no [^1] note", '<p>no <sup class="footnote-mark" data-label="1">[^1]</sup> note</p>'),
    (
        "see https://example.org/a_b_c.",
        '<p>see <a href="https://example.org/a_b_c" rel="noopener noreferrer" '
        'target="_blank">https://example.org/a_b_c</a>.</p>',
    ),
    (
        "`std::vector<std::pair<int,long>>::iterator`",
        "<p><code>std::<wbr>vector&lt;<wbr>std::<wbr>pair&lt;<wbr>int,<wbr>long&gt;&gt;::<wbr>iterator</code></p>",
    ),
    (
        "|a|\n|-|\n|" + "word " * 7 + "|",
        '<div class="table"><table><thead><tr><th>a</th></tr></thead><tbody><tr><td class="long">'
        + ("word " * 7).strip()
        + "</td></tr></tbody></table></div>",
    ),
    ("[a](javascript:alert(1)) ![b](data:x)", "<p><span>a</span> <span>b</span></p>"),
    ("half **open and `code", "<p>half **open and `code</p>"),
]


class Markdown(page_case.PageTest):
    def render(self, texts, what="innerHTML"):
        return self.browser.run(RENDER, texts, what)

    def test_each_form(self):
        for (text, wanted), shown in zip(CASES, self.render([text for text, _ in CASES])):
            self.assertEqual(wanted, shown, text)

    def test_code_keeps_every_character(self):
        code = "def f(x):\n    '''doc # no\n    '''\n    return \"a\\\"b\" + `x` // 2  # <end>\n\n\tx = 0x1F\n"
        for language in ("python", "c++", "sql", "sh", "json", "unknown", ""):
            whole, grown, same = self.browser.run(COLOURS, code, language)
            self.assertEqual([code, code], [whole, grown], language)
            self.assertTrue(same, language)  # code that grew has the colours of code that came at once

    def test_fences_name_their_language(self):
        texts = ["~~~  js {x}\n1\n~~~", "```c++\n1", "  ```` \n  1\n  ```\n  ````", "```{python}\n1"]
        self.assertEqual(["js1", "c++1", "text1\n```", "text1"], self.render(texts, "textContent"))

    def test_footnotes_are_numbered_as_they_come(self):
        text = "One[^b] two[^a] again[^b] none[^c].\n\n[^a]: First *note*\n    goes on.\n[^b]: Second.\n\nAfter.\n\n[^d]: Unused."
        [shown] = self.browser.run(
            """
            return import("/page/markdown/render.js").then(({ renderInto }) => {
              const node = document.createElement("div");
              for (let end = 1; end <= arguments[0].length; ++end) renderInto(node, arguments[0].slice(0, end));
              const notes = node.querySelector(".footnotes");
              return [{ marks: [...node.querySelectorAll("p > .footnote-mark")].map((mark) => mark.textContent),
                notes: [...notes.querySelectorAll("li")].map((note) => note.innerText.replace(/\\s+/g, " ").trim()),
                targets: [...node.querySelectorAll("p > .footnote-mark a")].every((link) => notes.querySelector(link.hash)),
                ids: new Set([...node.querySelectorAll("[id]")].map((inner) => inner.id)).size === node.querySelectorAll("[id]").length,
                last: node.lastChild === notes }];
            });""",
            text,
        )
        self.assertEqual(
            {
                "marks": ["1", "2", "1", "[^c]"],
                "notes": ["Second.↩", "First note goes on.↩", "Unused."],
                "targets": True,
                "ids": True,
                "last": True,
            },
            shown,
        )

    def test_coming_in_pieces_ends_in_the_same(self):
        text = (
            "\n\n".join(text for text, _ in CASES)
            + "\n```python\nx = 1\n```\nend\n\n"
            + mock_server.SHOWCASE
            + "\n1\n\n2. x\n\n* a\n**b**"
        )
        shown = self.browser.run(
            """
            return import("/page/markdown/render.js").then(({ renderInto }) => {
              const [node, whole] = [document.createElement("div"), document.createElement("div")];
              for (let length = 1; length <= arguments[0].length; ++length) renderInto(node, arguments[0].slice(0, length));
              renderInto(whole, arguments[0]);
              return [node.innerHTML, whole.innerHTML];
            });""",
            text,
        )
        self.assertEqual(*(re.sub(r"notes-\d+", "notes", html) for html in shown))


if __name__ == "__main__":
    page_case.main()
