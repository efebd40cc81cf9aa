"""Shows that tidy can fail: a small tree that is in order, then one thing wrong at a time."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TIDY = pathlib.Path(__file__).resolve().parent.parent.parent / "tools" / "tidy.py"

GOOD = {
    "docs/architecture.md": "| room | may include |\n|---|---|\n| base | std |\n| plan | base |\n| sim | base |\n"
                            "| sim/machine | plan |\n\n`start()` in `plan/page.cpp`\n",
    "CMakeLists.txt": "fourfold_room(base LINK Threads::Threads)\nfourfold_room(plan LINK fourfold_base)\n",
    "src/base/words.h": "int word();\n",
    "src/plan/page.cpp": '#include "base/words.h"\n\nint start() {\n  return word();\n}\n',
    "src/sim/machine/run.h": '#include "plan/page.h"\n',
    "tests/plan/page_test.cpp": "// tests\n",
}


class Tidy(unittest.TestCase):
    def run_tidy(self, *flags, **changes):
        """Runs tidy on the good tree with some files replaced; names write / as __ and . as _dot_."""
        files = {**GOOD, **{name.replace("__", "/").replace("_dot_", "."): text for name, text in changes.items()}}
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            run = subprocess.run([sys.executable, str(TIDY), folder, *flags], capture_output=True, text=True)
        return run.returncode, run.stdout

    def finds(self, text, *flags, **changes):
        status, output = self.run_tidy(*flags, **changes)
        self.assertEqual(status, 1, output)
        self.assertIn(text, output)
        self.assertIn(" 1 findings", output)

    def test_a_tree_in_order_passes(self):
        status, output = self.run_tidy()
        self.assertEqual(status, 0, output)
        self.assertIn("0 findings", output)

    def test_an_include_against_the_table(self):
        self.finds("src/base/words.h:2: base may include base; not plan",
                   src__base__words_dot_h='int word();\n#include "plan/page.h"\n')

    def test_a_sub_room_may_more_than_its_room(self):
        self.finds("src/sim/run.h:1: sim may include base, sim; not plan", src__sim__run_dot_h='#include "plan/page.h"\n')

    def test_folders_of_a_sub_room_have_an_order(self):
        table = GOOD["docs/architecture.md"].replace("| sim/machine | plan |\n",
            "| sim/machine | plan |\n| sim/machine/low | base |\n| sim/machine/high | sim/machine/low |\n")
        low, high, top = "src__sim__machine__low__a_dot_h", "src__sim__machine__high__b_dot_h", "src__sim__machine__run_dot_h"
        files = {"docs__architecture_dot_md": table, low: '#include "plan/page.h"\n#include "sim/words.h"\n',
                 high: '#include "sim/machine/low/a.h"\n#include "sim/machine/high/c.h"\n', top: '#include "sim/machine/high/b.h"\n'}
        self.assertEqual(self.run_tidy(**files)[0], 0)
        self.finds("src/sim/machine/low/a.h:1: sim/machine/low may include nothing of sim/machine; not sim/machine/high/b.h",
                   **{**files, low: '#include "sim/machine/high/b.h"\n'})
        self.finds("sim/machine/high may include sim/machine/low of sim/machine; not sim/machine/run.h",
                   **{**files, high: '#include "sim/machine/run.h"\n'})

    def test_a_hint_with_a_name_of_the_source(self):
        self.finds("src/base/words.h:1: a hint names something of the source",
                   src__base__words_dot_h='fail_with_hint(Code::io, "set Options::size", "no");\n')
        self.assertEqual(self.run_tidy(src__base__words_dot_h='fail_with_hint(Code::io, "Try again.", "no");\n')[0], 0)

    def test_a_second_list_of_rows(self):
        rows = {"src__kernels__norm__rows_dot_h": "using Rows = RowList<A, B>;\n",
                "cmake__kernels_dot_cmake": 'set(kernel_lists\n  "norm 1")\n',
                "docs__architecture_dot_md": GOOD["docs/architecture.md"].replace("| sim |", "| kernels | base |\n| sim |")}
        self.assertEqual(self.run_tidy(**rows)[0], 0)
        self.finds("src/kernels/launch/table.h:1: a second list of rows", **rows,
                   src__kernels__launch__table_dot_h="using Mine = RowList<A, B>;\n")
        self.finds("src/kernels/launch/table.h:1: reads the rows of norm alone", **rows,
                   src__kernels__launch__table_dot_h='#include "kernels/norm/rows.h"\n')
        self.finds("kernel_lists names norm 2 times",
                   **{**rows, "cmake__kernels_dot_cmake": 'set(kernel_lists\n  "norm 1"\n  "norm 2")\n'})
        self.finds("kernel_lists names norm 0 times", **{**rows, "cmake__kernels_dot_cmake": "set(kernel_lists)\n"})

    def test_a_room_nobody_described(self):
        self.finds("room text is not in the table", src__text__a_dot_h="int a();\n")

    def test_an_include_without_its_room(self):
        self.finds('include from src/', src__base__words_dot_h='#include "other.h"\nint word();\n',
                   src__base__other_dot_h="int other();\n")
        made_by_the_build = self.run_tidy(src__base__words_dot_h='#include "commit.h"\nint word();\n')
        self.assertEqual(made_by_the_build[0], 0)

    def test_a_cycle_in_the_table(self):
        table = GOOD["docs/architecture.md"].replace("| base | std |", "| base | plan |")
        status, output = self.run_tidy(docs__architecture_dot_md=table)
        self.assertEqual(status, 1)
        self.assertIn("room plan includes itself", output)

    def test_a_link_against_the_table(self):
        self.finds("CMakeLists.txt:1: room plan links sim", CMakeLists_dot_txt="fourfold_room(plan LINK fourfold_sim)\n")

    def test_facts_have_one_definition(self):
        facts = {
            "base__token_grain": ("inline constexpr int kTokenGrain = 64;\n", "the 64-token grain",
                                  ["constexpr std::int64_t kPageTokens = 64;\n", "constexpr int kAnchorTokens = 64;\n",
                                   "struct A {\n  int page_tokens = 64;\n};\n"],
                                  "constexpr int kPageTokens = kTokenGrain;\nconstexpr int kGroupTokens = 64;\n"),
            "plan__record_size": ("constexpr int kRecordRows = 32;\n", "a record's size",
                                  ["constexpr int kRecordColumns = 64;\n",
                                   "namespace fourfold::record {\n\nint a();\nconstexpr int kRows = 32;\n"],
                                  "namespace fourfold::record {\nconstexpr int kRows = plan::kRecordRows;\n}\nint kRows = 3;\n"),
            "base__weight_format": ("enum class WeightFormat : int { bf16, nvfp4 };\n", "the weight formats",
                                    ["enum class Format { fp8, nvfp4 };\n", "enum Held : int {\n  bf16,\n  nvfp4\n};\n"],
                                    "enum class InputFormat { f32, nvfp4 };\nenum class Other { bf16 };\n"),
            "base__published_shapes": ('constexpr MoeShape k{"35b", 2048, 512, 256, 8};\n', "the shapes of published models",
                                       ["return {2048, 512, 256, 8};\n", 'Shape a{.name = "122b", .layers = 48};\n'],
                                       "return {2048, 512, 512, 10};\nauto name = k.name;\n"),
        }
        for home, (text, what, seconds, others) in facts.items():
            first = {f"src__{home}_dot_h": text}
            for second in seconds:
                self.finds(f"a second definition of {what}", **first, src__base__words_dot_h="int word();\n" + second)
            self.assertEqual(self.run_tidy(**first, src__base__words_dot_h=others)[0], 0, what)
            self.finds(f"no definition of {what} is here any more", **{f"src__{home}_dot_h": "int none();\n"})

    def test_a_missing_test(self):
        self.finds("no tests/plan/other_test.cpp", src__plan__other_dot_cpp="int other();\n")

    def test_an_exception_without_a_reason(self):
        self.finds("a line is path: reason", src__plan__other_dot_cpp="int other();\n",
                   tests__tidy__without_test_dot_txt="src/plan/other.cpp:\n")

    def test_an_exception_for_a_folder(self):
        self.assertEqual(self.run_tidy(src__plan__new__other_dot_cpp="int other();\n",
                                       tests__tidy__without_test_dot_txt="src/plan/new/: being built\n")[0], 0)
        self.finds("no tests/plan/third_test.cpp", src__plan__new__other_dot_cpp="int other();\n",
                   src__plan__third_dot_cpp="int third();\n",
                   tests__tidy__without_test_dot_txt="src/plan/new/: being built\n")

    def test_an_exception_for_a_name_in_any_folder(self):
        everywhere = {"tests__tidy__without_test_dot_txt": "src/plan/*/make.cpp: made and read\n"}
        self.assertEqual(self.run_tidy(src__plan__new__make_dot_cpp="int other();\n", **everywhere)[0], 0)
        self.finds("no tests/plan/other_test.cpp", src__plan__new__make_dot_cpp="int other();\n",
                   src__plan__new__other_dot_cpp="int third();\n", **everywhere)
        self.finds("no tests/plan/make_test.cpp", src__plan__new__make_dot_cpp="int other();\n",
                   src__plan__new__old__make_dot_cpp="int third();\n", **everywhere)
        self.finds("src/plan/*/make.cpp does not exist", **everywhere)

    def test_an_exception_that_is_over(self):
        self.finds("has a test now", tests__tidy__without_test_dot_txt="src/plan/page.cpp: said elsewhere\n")

    def test_a_function_the_docs_invented(self):
        self.finds("finish() is nowhere in src",
                   docs__architecture_dot_md=GOOD["docs/architecture.md"] + "\nthen `plan::finish()`\n")

    def test_a_file_the_docs_invented(self):
        self.finds("plan/none.h does not exist", docs__architecture_dot_md=GOOD["docs/architecture.md"] + "\n`plan/none.h`\n")

    def test_long_functions(self):
        body = "  word();\n" * 69
        self.finds("a function of 71 lines", src__base__words_dot_h=f"inline int word(int a,\n          int b) {{\n{body}}}\n")
        status, _ = self.run_tidy(src__base__words_dot_h="inline int word() {\n" + "  word();\n" * 68 + "}\n")
        self.assertEqual(status, 0)

    def test_long_files(self):
        self.finds("501 lines", src__base__words_dot_h="int word();\n" * 501)

    def test_generated_files_may_be_long(self):
        text = "// Written by tools/x.py.\n" + "int word();\n" * 501
        self.assertEqual(self.run_tidy(src__base__words_dot_h=text)[0], 0)

    def test_long_lines_only_when_strict(self):
        line = "int word();  // " + "x" * 120 + "\n"
        self.assertEqual(self.run_tidy(src__base__words_dot_h=line)[0], 0)
        self.finds("136 columns", "--strict", src__base__words_dot_h=line)

    def test_packages_without_a_version(self):
        pip = "pip" + " install"
        for line, package in ((f"{pip} --quiet 'openai>=2' numpy==1.0", "openai>=2"), (f'"$venv/bin/{pip.replace(" ", chr(34) + " ")} numpy', "numpy"),
                              (f"{pip} -r list.txt a==1 b", "b"), (f'run(X, "{pip.replace(" ", chr(34) + ", " + chr(34))}", PINNED, "loose")', "loose")):
            self.finds(f"'{package}' has no version", tools__run_dot_sh=line + "\n")
        self.finds("'torch' has no version", tests__requirements_dot_txt="numpy==1.0  # not torch\ntorch\n")
        self.assertEqual(self.run_tidy(tools__run_dot_sh=f"{pip} --quiet -r list.txt 'a==1' b[c]==2.0\n")[0], 0)

    def test_paths_of_one_machine(self):
        self.finds("is a path of one machine", src__base__words_dot_h="int word();  // /wo" + "rk/x\n")


if __name__ == "__main__":
    unittest.main()
