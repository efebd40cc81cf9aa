"""Tools that are too old are refused by CMake with both versions: versions_test.py CXX. What they are is pretended, by a wrapper
of this build's compiler and by headers that say so; the tree itself is configured."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

CXX = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDED = dict(re.findall(r"^set\(FOURFOLD_(\w+)_MINIMUM ([0-9.]+)\)", (ROOT / "cmake/versions.cmake").read_text(), re.M))


class Versions(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fourfold-versions-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def program(self, name, body):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    def header(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def refused(self, *options):
        """What CMake says of this tree, on one line."""
        done = subprocess.run(["cmake", "-S", ROOT, "-B", self.folder / "build", "-G", "Ninja", "-DFOURFOLD_CUDA=off", *options],
                              capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        return " ".join(done.stderr.split())

    def test_compilers(self):
        for name, macros, found, needed in (
                ("g++", "-U__clang__ -U__GNUC__ -D__GNUC__=11 -U__GNUC_MINOR__ -D__GNUC_MINOR__=4", "11.4", NEEDED["GNU"]),
                ("clang", "-D__clang__=1 -U__clang_major__ -D__clang_major__=15 -U__clang_minor__ -D__clang_minor__=0 "
                          "-U__clang_patchlevel__ -D__clang_patchlevel__=7", "15.0.7", NEEDED["CLANG"])):
            with self.subTest(name):
                shutil.rmtree(self.folder / "build", ignore_errors=True)
                path = self.program(name, f'exec {CXX} {macros} "$@"')
                said = self.refused(f"-DCMAKE_CXX_COMPILER={path}")
                self.assertRegex(said, rf"fourfold: {re.escape(name)} \({re.escape(str(path))}\) is version {re.escape(found)}"
                                       rf"\S*; {needed} or newer is needed")

    def test_headers_and_python(self):
        compiler = f"-DCMAKE_CXX_COMPILER={CXX}"
        self.header("cli/CLI/CLI.hpp", '#define CLI11_VERSION "1.9.1"\n')
        self.assertIn(f"is version 1.9.1; {NEEDED['CLI11']} or newer", self.refused(compiler, f"-DFOURFOLD_CLI11={self.folder}/cli"))
        self.header("cli/CLI/Version.hpp", '#define CLI11_VERSION_MAJOR 2\n#define CLI11_VERSION "2.0.0"\n')
        self.assertIn(f"is version 2.0.0; {NEEDED['CLI11']} or newer", self.refused(compiler))
        self.header("cli/CLI/Version.hpp", f'#define CLI11_VERSION "{NEEDED["CLI11"]}.0"\n')
        self.header("toml/toml++/toml.h", "#define TOML_LIB_MAJOR 2\n#define TOML_LIB_MINOR 5\n#define TOML_LIB_PATCH 0\n")
        self.assertIn(f"is version 2.5.0; {NEEDED['TOML']} or newer", self.refused(compiler, f"-DFOURFOLD_TOML={self.folder}/toml"))
        self.header("toml/toml++/impl/version.h", "#define TOML_LIB_MAJOR 3\n#define TOML_LIB_MINOR 3\n#define TOML_LIB_PATCH 0\n")
        python = self.program("python3", "echo Python 3.8.10")
        self.assertIn(f"is version 3.8.10; {NEEDED['PYTHON']} or newer", self.refused(compiler, f"-DFOURFOLD_PYTHON={python}"))

    def test_ninja_and_googletest(self):
        compiler = f"-DCMAKE_CXX_COMPILER={CXX}"
        ninja = self.program("ninja", f'if [ "$1" = --version ]; then echo 1.9.0; else exec {shutil.which("ninja")} "$@"; fi')
        self.assertIn(f"is version 1.9.0; {NEEDED['NINJA']} or newer", self.refused(compiler, f"-DCMAKE_MAKE_PROGRAM={ninja}"))
        shutil.rmtree(self.folder / "build")
        self.header("gtest/GTestConfig.cmake", "add_library(GTest::gtest INTERFACE IMPORTED)\n"
                                               "add_library(GTest::gtest_main INTERFACE IMPORTED)\n")
        self.header("gtest/GTestConfigVersion.cmake", 'set(PACKAGE_VERSION 1.11.0)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n')
        said = self.refused(compiler, "-DFOURFOLD_TESTS=ON", f"-DGTest_DIR={self.folder}/gtest")
        self.assertIn(f"GoogleTest is version 1.11.0; {NEEDED['GTEST']} or newer", said)

    def test_the_pages_say_the_same(self):
        """What is written for those who install it by hand."""
        page = (ROOT / "docs/install.md").read_text()
        for text in (f"ninja {NEEDED['NINJA']}", f"g++ {NEEDED['GNU']}", f"clang {NEEDED['CLANG']}", f"Python {NEEDED['PYTHON']}",
                     f"CLI11 {NEEDED['CLI11']}", f"toml++ {NEEDED['TOML']}", f"GoogleTest {NEEDED['GTEST']}"):
            self.assertIn(text, " ".join(page.split()))
        script = (ROOT / "tools/setup.sh").read_text()
        self.assertIn(f"g++ {NEEDED['GNU']} or clang {NEEDED['CLANG']}", script)
        self.assertNotRegex(script, rf"clang (?!{NEEDED['CLANG']}\b)\d")


if __name__ == "__main__":
    unittest.main()
