"""Formulae: what TeX's words become, what is a formula in a text and what is money, and that no formula breaks the page.

math_test.py [unittest arguments]
"""

import re

import page_case

RENDER = """
return import("/page/math/tex.js").then(({ mathNode }) => arguments[0].map((tex) => {
  const node = mathNode(tex, false);
  return node.localName === "math" ? node.firstChild.innerHTML : `${node.textContent} | ${node.title}`;
}));
"""
TEXTS = """
return import("/page/markdown/render.js").then(({ renderInto }) => arguments[0].map((text) => {
  const node = document.createElement("div");
  renderInto(node, text);
  return [...node.querySelectorAll("math")].map((math) => (math.getAttribute("display") === "block" ? "D " : "") + math.getAttribute("alttext"));
}));
"""

CASES = [
    ("x^2", "<msup><mi>x</mi><mn>2</mn></msup>"),
    (
        "x_i^{n+1}",
        '<msubsup><mi>x</mi><mi>i</mi><mrow><mi>n</mi><mo lspace="0" rspace="0">+</mo><mn>1</mn></mrow></msubsup>',
    ),
    (r"\frac12", "<mfrac><mn>1</mn><mn>2</mn></mfrac>"),
    (r"\frac{a}{b}", "<mfrac><mi>a</mi><mi>b</mi></mfrac>"),
    (r"\sqrt[3]{x}", "<mroot><mi>x</mi><mn>3</mn></mroot>"),
    (r"\sqrt x", "<msqrt><mi>x</mi></msqrt>"),
    ("1,000.5", "<mn>1,000.5</mn>"),
    (
        "f'(x)",
        '<msup><mi>f</mi><mo lspace="0" rspace="0">′</mo></msup><mo stretchy="false" form="prefix">(</mo><mi>x</mi>'
        '<mo stretchy="false" form="postfix">)</mo>',
    ),
    (
        r"\sum_{i=1}^n i",
        '<munderover><mo>∑</mo><mrow><mi>i</mi><mo stretchy="false" lspace="0" rspace="0">=</mo><mn>1</mn></mrow>'
        "<mi>n</mi></munderover><mi>i</mi>",
    ),
    (
        r"\int_0^1 x\,dx",
        '<msubsup><mo rspace="0">∫</mo><mn>0</mn><mn>1</mn></msubsup><mi>x</mi><mspace width="0.1667em"></mspace>'
        "<mi>d</mi><mi>x</mi>",
    ),
    (r"\sin x", '<mi>sin</mi><mspace width="0.1667em"></mspace><mi>x</mi>'),
    (
        r"\sin(x)",
        '<mi>sin</mi><mo stretchy="false" form="prefix">(</mo><mi>x</mi><mo stretchy="false" form="postfix">)</mo>',
    ),
    (r"\alpha\Gamma", '<mi>α</mi><mi mathvariant="normal">Γ</mi>'),
    (
        r"\mathbb{R}\mathcal L\mathbf{x}",
        '<mi mathvariant="normal">ℝ</mi><mi mathvariant="normal">ℒ</mi><mi mathvariant="normal">𝐱</mi>',
    ),
    (r"\mathrm{Var}X", '<mi mathvariant="normal">Var</mi><mi>X</mi>'),
    (
        r"\operatorname{softmax}(z)",
        '<mi>softmax</mi><mo stretchy="false" form="prefix">(</mo><mi>z</mi><mo stretchy="false" form="postfix">)</mo>',
    ),
    (r"\text{if } x", "<mtext>if&nbsp;</mtext><mi>x</mi>"),
    (r"\hat x", '<mover accent="true"><mi>x</mi><mo stretchy="false" lspace="0" rspace="0">ˆ</mo></mover>'),
    (
        r"\left(\frac ab\right]",
        '<mrow><mo form="prefix" stretchy="true" lspace="0" rspace="0">(</mo><mfrac><mi>a</mi><mi>b</mi></mfrac>'
        '<mo form="postfix" stretchy="true" lspace="0" rspace="0">]</mo></mrow>',
    ),
    (
        r"\left(a\right)",
        '<mrow><mo form="prefix" stretchy="false" lspace="0" rspace="0">(</mo><mi>a</mi>'
        '<mo form="postfix" stretchy="false" lspace="0" rspace="0">)</mo></mrow>',
    ),
    (
        "a-(-b)",
        '<mi>a</mi><mo>−</mo><mo stretchy="false" form="prefix">(</mo><mo form="prefix">−</mo><mi>b</mi>'
        '<mo stretchy="false" form="postfix">)</mo>',
    ),
    (
        r"\begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix}",
        '<mrow><mo form="prefix" stretchy="true">(</mo><mtable>'
        '<mtr><mtd class="tex-c" columnalign="center"><mn>1</mn></mtd><mtd class="tex-c" columnalign="center"><mn>0</mn></mtd></mtr>'
        '<mtr><mtd class="tex-c" columnalign="center"><mn>0</mn></mtd><mtd class="tex-c" columnalign="center"><mn>1</mn></mtd></mtr>'
        '</mtable><mo form="postfix" stretchy="true">)</mo></mrow>',
    ),
    (
        r"\begin{aligned} a &= b \\ &= c \end{aligned}",
        '<mtable displaystyle="true" class="tex-aligned">'
        '<mtr><mtd class="tex-r" columnalign="right"><mi>a</mi></mtd><mtd class="tex-l" columnalign="left"><mo stretchy="false">=</mo><mi>b</mi>'
        '</mtd></mtr><mtr><mtd class="tex-r" columnalign="right"></mtd><mtd class="tex-l" columnalign="left"><mo stretchy="false">=</mo>'
        "<mi>c</mi></mtd></mtr></mtable>",
    ),
    (r"a \over b", "<mfrac><mi>a</mi><mi>b</mi></mfrac>"),
    (r"\not= \notin", '<mo stretchy="false">≠</mo><mo stretchy="false">∉</mo>'),
    (
        r"\ce{H2O}",
        '<mrow><msub><mi mathvariant="normal">H</mi><mn>2</mn></msub><mi mathvariant="normal">O</mi></mrow>',
    ),
    (r"\ce{SO4^2-}", '<mrow><msubsup><mi mathvariant="normal">SO</mi><mn>4</mn><mn>2−</mn></msubsup></mrow>'),
    (r"x % a comment", "<mi>x</mi>"),
    (r"50\%", "<mn>50</mn><mi>%</mi>"),
    (r"\unheardof x", '<mtext class="tex-unknown">\\unheardof</mtext><mi>x</mi>'),
    # What cannot be read is shown as it was written, with the reason.
    (r"\frac{a}", r"\frac{a} | Not shown as a formula: an argument is missing."),
    ("a}", "a} | Not shown as a formula: } is not expected."),
    ("{a", "{a | Not shown as a formula: } expected before the end."),
    ("x^2^3", "x^2^3 | Not shown as a formula: two ^ at one base."),
    (r"\left( x", r"\left( x | Not shown as a formula: \right expected before the end."),
    (
        r"\begin{pmatrix} a \end{bmatrix}",
        r"\begin{pmatrix} a \end{bmatrix} | Not shown as a formula: \begin{pmatrix} ends with \end{bmatrix}.",
    ),
    (
        r"\begin{tikz} a \end{tikz}",
        r"\begin{tikz} a \end{tikz} | Not shown as a formula: there is no environment tikz.",
    ),
    *[(tex, tex + " | Not shown as a formula: more than 80 levels.") for tex in (
        "{" * 100, r"\vec" * 3000 + "x", r"\sqrt" * 3900 + "x", r"\not" * 4900 + "x", r"\hat" * 4900 + "x", r"\frac1" * 3200 + "x",
        r"\overset1" * 2100 + "x", r"\mathop" * 2800 + "x", r"\bm" * 6000 + "x", r"a\over " * 2400 + "x")],
    ("!" * 2001, "!" * 2001 + " | Not shown as a formula: 2001 parts in a row; at most 2000 are shown."),
    (r"\vec" * 70 + " x", '<mover accent="true">' * 70 + "<mi>x</mi>" + '<mo stretchy="false" lspace="0" rspace="0">⃗</mo></mover>' * 70),
]

FOUND = [
    ("It costs $5 and $6.", []),
    ("from $10-$20, or $5, or 5$ in all", []),
    ("US$5 and US$6", []),
    ("a $ b $ c", []),
    ("$HOME and $PATH", []),
    ("echo $HOME:$PATH", []),
    (r"\$5 and \$6", []),
    ("`$x$` and `\\(y\\)`", []),
    ("```\n$$x$$\n```", []),
    ("Let $x$ be $y+1$.", ["x", "y+1"]),
    ("the $n$th and $k$-th", ["n", "k"]),
    ("($x$), $y$: $z$!", ["x", "y", "z"]),
    ("$5$ apples cost $3$ dollars", ["5", "3"]),
    ("**bold $x$**", ["x"]),
    ("| $a$ | $b$ |\n|--|--|\n| $c$ | d |", ["a", "b", "c"]),
    (r"so \(a_1\) and \[b\] here", ["a_1", "D b"]),
    ("in line $$x$$ too", ["D x"]),
    ("$$\nx = 1\n$$", ["D x = 1"]),
    ("$$x = 1$$\n\ntext", ["D x = 1"]),
    ("text\n$$\nx\n$$\nmore", ["D x"]),
    ("\\[\na \\\\\nb\n\\]", ["D a \\\\\nb"]),
    ("\\begin{align*}\na &= b\n\\end{align*}", ["D \\begin{align*}\na &= b\n\\end{align*}"]),
    ("- one $x$\n- two\n  $$\n  y\n  $$", ["x", "D y"]),
    ("> $q$", ["q"]),
    ("# Title $t$", ["t"]),
    ("$$\nnever closed", []),
    ("$$\nbroken\n\nby a blank line\n$$", []),
    ("$$$ three", []),
    ("$x", []),
    ("\\(x", []),
    ("snake $a_b$ case_x and $c_d$", ["a_b", "c_d"]),
    ("[$x$](https://example.org)", ["x"]),
]


class Formulae(page_case.PageTest):
    def test_1_each_form(self):
        cases = CASES
        for (tex, wanted), shown in zip(cases, self.browser.run(RENDER, [tex for tex, _ in cases])):
            self.assertEqual(wanted, re.sub(r' xmlns="[^"]*"', "", shown), tex)

    def test_2_what_is_a_formula(self):
        for (text, wanted), found in zip(FOUND, self.browser.run(TEXTS, [text for text, _ in FOUND])):
            self.assertEqual(wanted, found, text)

    def test_3_every_symbol_is_drawn(self):
        """Each name gives a node with text, and the characters are those of the font or of the few that it has not."""
        shown = self.browser.run("""
            return Promise.all([import("/page/math/symbols.js"), import("/page/math/tex.js")]).then(([{ kSymbols }, { mathNode }]) =>
              [...kSymbols.keys()].filter((name) => /^[A-Za-z]+$/.test(name)).map((name) => {
                const node = mathNode(`\\\\${name}`, false);
                return [name, node.localName, node.textContent, node.querySelectorAll(".tex-unknown").length];
              }));""")
        self.assertGreater(len(shown), 550)
        for name, kind, text, unknown in shown:
            self.assertEqual(("math", 0), (kind, unknown), name)
            self.assertTrue(text.strip(), name)

    def test_4_the_page_has_its_own_font_and_no_styles_in_attributes(self):
        self.ask("show")
        self.assertTrue(
            self.browser.run(
                "return document.fonts.ready.then(() => document.fonts.check('16px Fourfold Math', '∑'))"
            )
        )
        self.assertEqual(
            ["loaded"],
            self.browser.run(
                "return [...document.fonts].filter((font) => font.family.includes('Fourfold Math')).map((font) => font.status)"
            ),
        )
        self.assertEqual(0, self.count("#messages [style]"))
        # A fence really grows with what it holds, which only a font with a table for mathematics does.
        tall = self.browser.run(
            "return [...document.querySelectorAll('math[display] mo')].find((node) => node.textContent === '(' && "
            "node.getAttribute('stretchy') === 'true').getBoundingClientRect().height"
        )
        plain = self.browser.run(
            "return [...document.querySelectorAll('math mo')].find((node) => node.textContent === '(' && "
            "node.getAttribute('stretchy') === 'false').getBoundingClientRect().height"
        )
        self.assertGreater(tall, 1.8 * plain)

    def test_5_a_selection_is_copied_as_tex(self):
        self.ask("show")
        copied = self.browser.run("""
            const range = document.createRange();
            range.selectNodeContents(document.querySelector(".assistant .prose > p"));
            getSelection().removeAllRanges();
            getSelection().addRange(range);
            const event = new ClipboardEvent("copy", { clipboardData: new DataTransfer(), bubbles: true, cancelable: true });
            document.dispatchEvent(event);
            return event.clipboardData.getData("text/plain");""")
        self.assertEqual(r"A random variable $X$ with mean $\mu$ and variance $\sigma^2$ has the density", copied)


if __name__ == "__main__":
    page_case.main()
