"""cmake/together.py: files that would change each other's meaning are compiled apart."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "cmake"))
import together

FILE = """#include <string>

namespace fourfold {
namespace {
%s
}  // namespace
%s
}  // namespace fourfold
"""


class Together(unittest.TestCase):
    def groups(self, *files, size=16):
        with tempfile.TemporaryDirectory() as holder:
            paths = []
            for number, (own, rest) in enumerate(files):
                path = pathlib.Path(holder) / f"{number}.cpp"
                path.write_text(FILE % (own, rest))
                paths.append(str(path))
            return sorted(tuple(int(pathlib.Path(path).stem) for path in group)
                          for group in together.groups_of(paths, size))

    def test_files_with_names_of_their_own_go_together_as_many_as_fit(self):
        files = [(f"int count_{name}() {{ return 1; }}", "") for name in "abc"]
        self.assertEqual(self.groups(*files), [(0, 1, 2)])
        self.assertEqual(self.groups(*files, size=2), [(0, 1)])

    def test_the_same_name_twice_is_kept_apart(self):
        for own in ("int count() { return 1; }", "struct Row {};", "constexpr int kRows = 3;", "using Rows = int*;"):
            self.assertEqual(self.groups((own, ""), (own.replace("int", "long").replace("{}", "{int row;}"), "")), [], own)
        self.assertEqual(self.groups(("using Rows = int*;", ""), ("using Rows = int*;", "")), [(0, 1)])

    def test_a_name_that_a_neighbour_uses_is_kept_apart(self):
        own = ("int count(int rows) { return rows; }", "")
        for use in ("long all() { return count(3l); }", "char all(char c) { return c == '\"' ? count(c) : 'c'; }  // \"",
                    "long all() { return 1'000 + count(3l) + 2'000; }"):
            self.assertEqual(self.groups(own, ("", use)), [], use)
        # Another's member, a comment, a literal.
        for use in ("int all() { return rows.count(3); }", "int all() { return 3; }  // count",
                    'const char* all() { return "count"; }', 'const char* all() { return R"(count)"; }'):
            self.assertEqual(self.groups(own, ("", use)), [(0, 1)], use)

    def test_a_comment_behind_a_brace_does_not_end_what_is_a_files_own(self):
        own = "struct Exact {\n}  // exact values only\n;\nint count() { return 1; }"
        self.assertEqual(self.groups((own, ""), (own.replace("Exact", "Other"), "")), [])


if __name__ == "__main__":
    unittest.main()
