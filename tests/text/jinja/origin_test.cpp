// Which bytes of a rendering are the template's own: every way a template has to build text. Foreign
// stretches stand in brackets.
#include <gtest/gtest.h>

#include "base/error.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/json_value.h"

namespace fourfold::text::jinja {
namespace {

std::string shown(const TracedText& text) {
  std::string out;
  std::size_t at = 0;
  const auto foreign = [&](std::size_t end) {
    if (end > at) out += "[" + text.bytes().substr(at, end - at) + "]";
  };
  for (const Run& run : text.own_runs()) {
    foreign(run.begin);
    out += text.bytes().substr(run.begin, run.end - run.begin);
    at = run.end;
  }
  foreign(text.size());
  return out;
}

std::string rendered(std::string_view source) {
  static const Value variables = parse_json(
      R"({"v": "xyz", "w": "  p q  ", "n": 7, "list": ["a", "b"], "dict": {"k": "u"}, "line": "r\ns",
          "html": "<&", "pattern": "A%sB", "braces": "A{}B", "cap": "HeLLo wORLD", "long": "aa bb cc dd"})",
      "variables");
  try {
    return shown(Evaluator("t", {}, {}).render(parse_template(source, "t"), *variables.dict()));
  } catch (const Error& error) {
    return error.what();
  }
}

struct Case {
  const char* source;
  const char* expected;
};

class Origin : public testing::TestWithParam<Case> {};

TEST_P(Origin, OfEveryByte) {
  EXPECT_EQ(rendered(GetParam().source), GetParam().expected) << GetParam().source;
}

INSTANTIATE_TEST_SUITE_P(
    Output, Origin,
    testing::Values(
        Case{"abc", "abc"}, Case{"a{{ v }}b", "a[xyz]b"}, Case{"{{ 'lit' }}{{ v }}", "lit[xyz]"},
        Case{"{{ n }}{{ true }}{{ none }}", "[7TrueNone]"}, Case{"{% set x = 'a' + v %}{{ x }}!", "a[xyz]!"},
        Case{"{% set x %}a{{ v }}b{% endset %}{{ x }}", "a[xyz]b"},
        Case{"{% macro m(p) %}<{{ p }}>{% endmacro %}{{ m(v) }}{{ m('o') }}", "<[xyz]><o>"},
        Case{"{% filter upper %}a{{ v }}{% endfilter %}", "A[XYZ]"},
        Case{"{% for c in v %}({{ c }}){% endfor %}", "([x])([y])([z])"},
        Case{"{% for c in 'ab' %}{{ c }}{% endfor %}", "ab"},
        Case{"{% set ns = namespace(t='') %}{% for i in list %}{% set ns.t = ns.t + i + ',' "
             "%}{% endfor %}{{ ns.t }}",
             "[a],[b],"},
        Case{"{% macro c(p) %}a{{ caller(p) }}{% endmacro %}{% call(x) c(v) %}b{{ x }}{% endcall %}",
             "ab[xyz]"},
        Case{"{% for x in [v] recursive %}a{{ x }}{% if x %}{{ loop(['']) }}{% endif %}{% endfor %}",
             "a[xyz]a"},
        Case{"{{ list }}", "[['a', 'b']]"}, Case{"{{ ['o'] }}", "[['o']]"}));

INSTANTIATE_TEST_SUITE_P(
    Operators, Origin,
    testing::Values(Case{"{{ 'a' + v + 'b' }}", "a[xyz]b"}, Case{"{{ 'a' ~ v ~ n ~ 'b' }}", "a[xyz7]b"},
                    Case{"{{ ('a' + v) * 2 }}", "a[xyz]a[xyz]"}, Case{"{{ 2 * 'ab' }}", "abab"},
                    Case{"{{ ('ab' + v)[1:4] }}", "b[xy]"}, Case{"{{ ('ab' + v)[::-1] }}", "[zyx]ba"},
                    Case{"{{ ('ab' + v)[::2] }}", "a[xz]"},
                    Case{"{{ ('ab' + v)[1] }}{{ ('ab' + v)[2] }}", "b[x]"},
                    Case{"{{ 'a%sb%db' % (v, n) }}", "a[xyz]b[7]b"},
                    Case{"{{ pattern % 'own' }}", "[A]own[B]"}, Case{"{{ 'a%5sb' % 'o' }}", "a[    ]ob"},
                    Case{"{{ 'a%%b' % () }}", "a[%]b"}, Case{"{{ 'a%.2sb' % v }}", "a[xy]b"},
                    Case{"{{ '%r' % v }}", "['xyz']"},
                    Case{"{{ v or 'a' }}{{ '' or 'a' }}{{ v if n else 'a' }}", "[xyz]a[xyz]"},
                    Case{"{{ {'o': 1}.keys() | first }}{{ (dict.items() | first)[0] }}", "o[k]"},
                    Case{"{{ dict['k'] }}{{ dict.k }}{{ {'a': 'o'}[list[0]] }}", "[uu]o"}));

INSTANTIATE_TEST_SUITE_P(
    Methods, Origin,
    testing::Values(
        Case{"{{ ('a' + w + 'b').strip('ab') }}", "[  p q  ]"}, Case{"{{ (' a' + w).strip() }}", "a[  p q]"},
        Case{"{{ ('a' + w + ' b ').rstrip() }}|{{ ('  ' + v).lstrip() }}", "a[  p q  ] b|[xyz]"},
        Case{"{{ ('a ' + v + ' b').split() | join('-') }}", "a-[xyz]-b"},
        Case{"{{ ('a,' + v + ',b').split(',') | join('-') }}", "a-[xyz]-b"},
        Case{"{{ ('a,' + v + ',b').rsplit(',', 1)[0] }}", "a,[xyz]"},
        Case{"{{ ('a' + line).splitlines() | join('|') }}", "a[r]|[s]"},
        Case{"{{ ('a=' + v).partition('=')[2] }}{{ ('a=' + v).partition('=')[1] }}", "[xyz]="},
        Case{"{{ ('a' + v + 'a').replace('a', 'b') }}", "b[xyz]b"},
        Case{"{{ ('a' + v).replace('y', 'own') }}", "a[x]own[z]"},
        Case{"{{ 'aQb'.replace('Q', v) }}{{ 'ab'.replace('', v) }}", "a[xyz]b[xyz]a[xyz]b[xyz]"},
        Case{"{{ '-'.join(['a', v, 'b']) }}{{ v.join('ab') }}", "a-[xyz]-ba[xyz]b"},
        Case{"{{ 'a{}b{:>3}c{{}}'.format(v, 'o') }}", "a[xyz]b[  ]oc{}"},
        Case{"{{ braces.format('o') }}", "[A]o[B]"},
        Case{"{{ ('a' + v).removeprefix('a') }}{{ ('a' + v).removesuffix('z') }}", "[xyz]a[xy]"},
        Case{"{{ ('a' + v).ljust(6) }}{{ 'a'.rjust(3) }}{{ 'a'.center(3) }}{{ '-1'.zfill(4) }}",
             "a[xyz    ]a[ ]a[ ]-[00]1"},
        Case{"{{ ('a' + cap).upper() }}{{ ('A' + cap).lower() }}", "A[HELLO WORLD]a[hello world]"},
        Case{"{{ ('a ' + cap).title() }}{{ ('a' + cap).capitalize() }}", "A [Hello World]A[hello world]"}));

INSTANTIATE_TEST_SUITE_P(
    Filters, Origin,
    testing::Values(
        Case{"{{ (' a' + w) | trim }}", "a[  p q]"},
        Case{"{{ v | string }}{{ 'a' | string }}{{ n | string }}", "[xyz]a[7]"},
        Case{"{{ ('<' + html) | escape }}{{ ('<' + html) | safe }}", "&lt;[&lt;&amp;]<[<&]"},
        Case{"{{ '<' | safe + html }}", "<[&lt;&amp;]"},
        Case{"{{ ('a' + v) | replace('x', 'o') }}", "ao[yz]"},
        Case{"{{ ('a\\n' + line) | indent(2) }}", "a[\n  r\n  s]"},
        Case{"{{ ('a\\n' + v) | indent('-') }}", "a[\n]-[xyz]"},
        Case{"{{ long | truncate(7, true, '!', 0) }}{{ 'aaaa bbbb' | truncate(6, false, v, 0) }}",
             "[aa bb ]!aaa[xyz]"},
        Case{"{{ 'a%s' | format(v) }}", "a[xyz]"}, Case{"{{ ('a' + v) | center(6) }}", "[ ]a[xyz ]"},
        Case{"{{ ('a' + cap) | title }}{{ ('a' + cap) | capitalize }}", "A[hello World]A[hello world]"},
        Case{"{{ ('a/' + v) | urlencode }}", "a/[xyz]"}, Case{"{{ ['a', v] | join(',') }}", "a,[xyz]"},
        Case{"{{ ['a', v] | first }}{{ ['a', v] | last }}{{ ['b', 'a'] | sort | join }}", "a[xyz]ab"},
        Case{"{{ ('a' + v) | reverse }}{{ ['a', v] | reverse | join }}", "[zyx]a[xyz]a"},
        Case{"{{ ['a', v] | map('upper') | join }}{{ ['a', v] | sum(start='') }}", "A[XYZ]a[xyz]"},
        Case{"{{ nothing | default('a') }}{{ nothing | default(v) }}", "a[xyz]"},
        Case{"{{ 'a' | tojson }}{{ v | tojson }}", "[\"]a[\"\"xyz\"]"},
        Case{"{{ {'a': v, 'b': 1} | tojson }}", "[{\"]a[\": \"xyz\", \"]b[\": 1}]"},
        Case{"{{ ('\"' + html) | tojson(ensure_ascii=true) }}", "[\"]\\\"[<&\"]"},
        Case{"{% set j = joiner('-') %}{{ j() }}a{{ j() }}b", "a-b"}));

}  // namespace
}  // namespace fourfold::text::jinja
