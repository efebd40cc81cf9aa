"""Small random templates: expressions, filters, tests, methods, loops, macros and white space around tags."""

import fuzz_strings

VARIABLES = {
    "s": "Hello World",
    "e": "",
    "u": "é雪 x",
    "n": 3,
    "z": 0,
    "m": -7,
    "f": 2.5,
    "t": True,
    "no": None,
    "l": [3, 1, 2],
    "w": ["b", "A", "c"],
    "d": {"a": 1, "B": [1, 2], "items": "x", "c": None},
    "deep": {"x": {"y": [10, 20]}},
    "recs": [
        {"name": "bo", "age": 3, "on": True},
        {"name": "Al", "age": 1, "on": False},
        {"name": "cy", "age": 2},
    ],
    "lines": "one\n\n  two\nthree\n",
    "html": "<a & 'b'>",
    "num": "42",
    "fl": " 3.75 ",
}
ATOMS = list(VARIABLES) + [
    "missing",
    "0",
    "1",
    "2",
    "-1",
    "10",
    "1.5",
    "1e3",
    "0.1",
    "true",
    "false",
    "none",
    "''",
    "'a'",
    "'o'",
    "' '",
    '"x\\ny"',
    "'l'",
    "[]",
    "[1, 'a', none]",
    "(1, 2)",
    "(1,)",
    "{}",
    "{'k': 1, 2: 'v'}",
    "range(4)",
    "recs[0]",
    "d.a",
    "d['B']",
    "deep.x.y",
    "w[0]",
    "s[1]",
    "namespace(a=1).a",
]
# jinja2 folds slices of constants differently from slices of variables, so only sequences are sliced.
SLICED = [
    a + b
    for a in ("s", "u", "e", "l", "w", "recs", "deep.x.y", "range(4)", "(1, 2)", "lines.split()", "'abc'")
    for b in ("[1:]", "[:2]", "[::-1]", "[::2]", "[-2:]", "[1:100]", "[:-1]", "[3:1:-1]", "[n:]", "[:z]")
]
ATOMS += [
    "(html|urlencode)",
    "(u|urlencode)",
    "2**10",
    "n**2",
    "f**2",
    "2**-1",
]  # towers of ** would keep Python busy for good
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">", "<=", ">=", "and", "or", "in", "not in"]
FILTERS = [
    "length",
    "upper",
    "lower",
    "title",
    "capitalize",
    "trim",
    "string",
    "list",
    "first",
    "last",
    "tojson",
    "int",
    "float",
    "abs",
    "round",
    "round(1)",
    "join",
    "join(', ')",
    "reverse|list",
    "sort",
    "unique|list",
    "sum",
    "min",
    "max",
    "default('D')",
    "default('D', true)",
    "d('q')",
    "replace('l', 'L')",
    "replace('a', '')",
    "items|list",
    "dictsort",
    "safe",
    "escape",
    "e",
    "indent(2)",
    "indent(3, true)",
    "indent(width=1, blank=true)",
    "tojson(indent=2)",
    "tojson(sort_keys=true)",
    "map('upper')|list",
    "map(attribute='name')|list",
    "map(attribute='name')|join('+')",
    "select|list",
    "reject('none')|list",
    "selectattr('on')|list",
    "selectattr('age', '>', 1)|map(attribute='name')|list",
    "rejectattr('on', 'defined')|list",
    "sort(attribute='age')|map(attribute='name')|join",
    "sort(reverse=true)",
    "sort(case_sensitive=true)",
    "batch(2)|list",
    "truncate(8)",
    "truncate(8, true, '!')",
    "wordcount",
    "count",
    "center(9)",
    "format(1)",
    "tojson|safe",
    "groupby('on')|list",
    "map('int')|list",
    "map('string')|join('|')",
    "trim('H d')",
    "int(base=16)",
    "round(method='floor')",
    "attr('name')",
    "selectattr('name', 'equalto', 'bo')|list|length",
    "tojson(separators=(',', ':'))",
    "last|string",
]
TESTS = [
    "defined",
    "undefined",
    "none",
    "string",
    "number",
    "integer",
    "float",
    "boolean",
    "mapping",
    "sequence",
    "iterable",
    "true",
    "false",
    "odd",
    "even",
    "divisibleby(2)",
    "divisibleby 3",
    "in [1, 2, 3]",
    "eq(1)",
    "equalto 'a'",
    "ne 0",
    "gt 1",
    "lt(2)",
    "ge 3",
    "upper",
    "lower",
    "callable",
    "sameas none",
    "escaped",
    "in s",
]
METHODS = [
    ".strip()",
    ".lstrip()",
    ".rstrip('d')",
    ".split()",
    ".split('o')",
    ".split('l', 1)",
    ".rsplit('l', 1)",
    ".upper()",
    ".lower()",
    ".title()",
    ".capitalize()",
    ".startswith('H')",
    ".endswith(('d', 'x'))",
    ".replace('o', '0')",
    ".replace('l', 'L', 1)",
    ".find('o')",
    ".rfind('o')",
    ".count('l')",
    ".join(w)",
    ".items()",
    ".keys()|list",
    ".values()|list",
    ".get('a')",
    ".get('q', 'Q')",
    ".index(1)",
    ".splitlines()",
    ".partition('o')",
    ".rpartition('l')",
    ".isdigit()",
    ".isalpha()",
    ".isspace()",
    ".isupper()",
    ".islower()",
    ".zfill(6)",
    ".ljust(5)",
    ".rjust(14, '*')",
    ".center(14)",
    ".format(1, a=2)",
    ".removeprefix('He')",
    ".removesuffix('ld')",
    ".name",
    ".a",
    ".x",
    ".append(1)",
    "[0]",
    "[-1]",
    "['a']",
    "[5]",
    ".copy()",
    ".isalnum()",
]
OPENS = ["{{", "{{-", "{{ "]
CLOSES = ["}}", "-}}", " }}"]
BLOCK_OPENS = ["{%", "{%-", "{%+", "  {%", "\n  {%-", "\n {%", "\n\t{%+"]
BLOCK_CLOSES = ["%}", "-%}", "+%}", "%}\n", "%}\n  ", "-%} \n "]
FORMATS = [
    "'%s' % n",
    "'%5.2f|%d' % (f, n)",
    "'%-6s|' % s",
    "'%05d' % m",
    "'%x' % 255",
    "'%%' % ()",
    "'%s %r' % (s, s)",
    "'%e' % f",
    "'%g' % 1e10",
    "'{}'.format(s)",
    "'{0}-{1}-{0}'.format(1, 2)",
    "'{:>8}|{:<6}|{:^7}'.format(1, 'a', 'b')",
    "'{a!r:*^9}'.format(a='x')",
    "'{:,}'.format(1234567)",
    "'{:.3f}'.format(f)",
    "'{:08.2f}'.format(m)",
    "'{:+d}'.format(n)",
    "'{:x}'.format(255)",
    "'{:.2%}'.format(0.256)",
    "'{{}}'.format()",
    "'{:e}'.format(12345.678)",
    "'{:g}'.format(0.0001)",
    "'{:.3}'.format('abcdef')",
    "'%.3s' % s",
    "'%+d % d' % (n, n)",
    "'{:#x}'.format(255)",
]


class Writer:
    def __init__(self, random):
        self.random = random

    def pick(self, items):
        return items[self.random.below(len(items))]

    def expression(self, depth=0):
        kind = self.random.below(12 if depth < 3 else 2)
        if kind < 2:
            return self.pick(ATOMS)
        inner = self.expression(depth + 1)
        if kind < 4:
            return f"{inner} {self.pick(BINARY)} {self.expression(depth + 1)}"
        if kind < 6:
            return f"({inner})|{self.pick(FILTERS)}"
        if kind == 6:
            return f"{self.pick(ATOMS)}|{self.pick(FILTERS)}|{self.pick(FILTERS)}"
        if kind == 7:
            return f"({inner}) is {self.pick(['', 'not '])}{self.pick(TESTS)}"
        if kind == 8:
            return f"({inner}){self.pick(METHODS)}"
        if kind == 9:
            return (
                self.pick(SLICED) if self.random.below(3) == 0 else f"{self.pick(ATOMS)}{self.pick(METHODS)}"
            )
        if kind == 10:
            return self.pick(
                [
                    f"({inner} if {self.expression(depth + 1)} else {self.expression(depth + 1)})",
                    f"(not {inner})",
                    f"-{self.pick(ATOMS)}",
                    f"[{inner}, {self.expression(depth + 1)}]",
                    f"{{'k': {inner}}}",
                    f"({inner})",
                ]
            )
        return self.pick(FORMATS)

    def tag(self, text):
        return f"{self.pick(BLOCK_OPENS)} {text} {self.pick(BLOCK_CLOSES)}"

    def printed(self):
        return f"{self.pick(OPENS)}{self.expression(1)}{self.pick(CLOSES)}"

    def statement(self, depth):
        kind = self.random.below(14 if depth < 3 else 4)
        body = lambda: self.body(depth + 1)
        if kind < 3:
            return self.printed()
        if kind == 3:
            return self.pick(
                [
                    "text ",
                    "\n",
                    " ",
                    "a\n  b",
                    "{",
                    "}",
                    "%",
                    "{# note #}",
                    "  {#- x -#}\n",
                    "\n{# y #}\n",
                    "é",
                ]
            )
        if kind == 4:
            return (
                self.tag(f"if {self.expression(2)}")
                + body()
                + self.pick(["", self.tag("else") + body(), self.tag(f"elif {self.expression(2)}") + body()])
                + self.tag("endif")
            )
        if kind == 5:
            source = self.pick(
                ["l", "w", "recs", "d", "s", "range(3)", "[]", "missing", "deep.x.y", self.expression(2)]
            )
            extra = self.pick(["", "", " if x", " if loop is undefined"])
            inner = self.pick(
                [
                    "{{ loop.index }}{{ x }},",
                    "{{ loop.index0 }}/{{ loop.length }}{{ loop.last }}",
                    "{{ loop.previtem }}<{{ loop.nextitem }};",
                    "{{ loop.cycle('a', 'b') }}",
                    "{{ loop.revindex }}{{ loop.first }}",
                    "{{ loop.changed(x) }}",
                    "{% if loop.index == 2 %}{% break %}{% endif %}",
                    "{% if loop.first %}{% continue %}{% endif %}{{ x }}",
                    "{% set n = n + 1 %}{{ n }}",
                ]
            )
            return (
                self.tag(f"for x in {source}{extra}")
                + inner
                + body()
                + self.pick(["", self.tag("else") + "none"])
                + self.tag("endfor")
            )
        if kind == 6:
            return (
                self.tag(
                    f"for k, v in {self.pick(['d.items()', 'd|items', 'd|dictsort', 'recs', 'missing|items'])}"
                )
                + "{{ k }}={{ v }};"
                + self.tag("endfor")
            )
        if kind == 7:
            # Fresh names only: a macro that reads a name which its template sets later sees undefined in jinja2.
            return self.tag(f"set {self.pick(['q', 'p', 'a, b'])} = {self.expression(1)}") + self.printed()
        if kind == 8:
            return (
                self.tag("set q" + self.pick(["", "|upper", "|trim|length"]))
                + body()
                + self.tag("endset")
                + "[{{ q }}]"
            )
        if kind == 9:
            return (
                self.tag("macro g(x, y='Y', z=n)")
                + "<{{ x }}{{ y }}{{ z }}"
                + body()
                + ">"
                + self.tag("endmacro")
                + self.pick(
                    [
                        "{{ g(1) }}",
                        "{{ g(s, z=2) }}",
                        "{{ g() }}",
                        "{{ g(1, 2, 3, 4) }}",
                        "{{ g(q=1) }}",
                        "{{ g(1)|trim }}",
                        "{% call g(1) %}c{% endcall %}",
                    ]
                )
            )
        if kind == 10:
            return (
                "{% macro h() %}[{{ caller() }}{{ varargs }}{{ kwargs }}]{% endmacro %}{% call h("
                + self.pick(["", "1", "1, b=2"])
                + ") %}"
                + body()
                + "{% endcall %}"
            )
        if kind == 11:
            return "{% set ns = namespace(c=0, t='') %}{% for x in l %}{% set ns.c = ns.c + x %}{% set ns.t = ns.t ~ x %}{% endfor %}{{ ns.c }}{{ ns.t }}{{ ns.q }}"
        if kind == 12:
            return self.pick(
                [
                    "{% with x=1, y=n %}{{ x }}{{ y }}" + body() + "{% endwith %}",
                    "{% filter upper %}" + body() + "{% endfilter %}",
                    "{% generation %}" + body() + "{% endgeneration %}",
                    "{% raw %}{{ x }}{% if %}\n{% endraw %}\n",
                    "{%- raw -%}\n a {{ }}\n{%- endraw -%}\n x",
                    "{{ strftime_now('%d %b %Y %H:%M %A') }}",
                    "{{ raise_exception('no') }}",
                    "{% for a in [1, [2, [3]]] recursive %}{{ a if a is number else loop(a) }}{% endfor %}",
                    "{% print n, s %}",
                    "{{ 1, 2 }}",
                    "{{ dict(a=1, b=n) }}",
                    "{% set j = joiner('; ') %}{{ j() }}a{{ j() }}b",
                ]
            )
        return (
            self.tag(f"if {self.pick(['messages', 'n > 1', 't', 'no', 'd.a == 1', 'missing is defined'])}")
            + body()
            + self.tag("endif")
        )

    def body(self, depth=0):
        return "".join(self.statement(depth) for _ in range(1 + self.random.below(3)))


def case(seed, index):
    # Most of them small: a template that fails early tells nothing about its rest.
    writer = Writer(fuzz_strings.Random(seed * 104_729 + index))
    kind = index % 8
    if kind < 3:
        source = "{{ " + writer.expression(2) + " }}"
    elif kind < 5:
        source = "{{ " + writer.expression(1) + " }}"
    else:
        source = writer.body(2 if kind < 7 else 1)
    return source, VARIABLES
