"""./dev and its parts where they must refuse or report: bad words, missing packages, failing builds and tests."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "cmake")]

import stale_results  # noqa: E402
import together  # noqa: E402


def run(*command, **environment):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env={**os.environ, **environment})
    return done.returncode, done.stdout + done.stderr


class Dev(unittest.TestCase):
    def test_help_names_every_command(self):
        status, output = run(ROOT / "dev", "help")
        self.assertEqual(status, 0)
        for command in ("try", "test", "test --long", "build", "package", "gpu", "fmt", "tidy", "docs", "bundle"):
            self.assertIn(f"./dev {command}", output)

    def test_unknown_words_are_refused(self):
        for words in (("tset",), ("test", "--short"), ("try", "hard"), ("fmt", "--fix"), ("bundle",), ("gpu", "now"),
                      ("try", "--proof", "twice"), ("package",), ("package", "rpm"), ("package", "deb", "wheel")):
            status, output = run(ROOT / "dev", *words)
            self.assertEqual(status, 64, words)
            self.assertIn("dev: ", output)

    def test_racecheck_and_small_sms_write_a_file_each(self):
        """With stand-ins for the card, the compiler and the sanitizer."""
        with tempfile.TemporaryDirectory() as holder:
            folder = pathlib.Path(holder)
            program = """#!/bin/sh
                case "$*" in
                  *--json*) [ "$RACES" = "no rows" ] || echo '{"rows": [{"kernel": "attend"}, {"kernel": "pack"}, {"kernel": "attend"}]}' ;;
                  *) echo "bench $* ${FOURFOLD_EMULATE_SM_BYTES:-whole}" ;;
                esac"""
            sanitizer = """#!/bin/sh
                echo "3 proofs of 3 passed"
                case "$*" in *"$RACES"*) hazards=2 ;; *) hazards=0 ;; esac
                echo "========= RACECHECK SUMMARY: $hazards hazards displayed (0 errors, 0 warnings)" """
            for name, text in (("bin/nvidia-smi", '#!/bin/sh\ncase "$*" in *driver*) echo Card 1, 580.1 ;; *) echo NVIDIA Card 1 ;; esac'), ("bin/cmake", "#!/bin/sh"),
                               ("bin/compute-sanitizer", sanitizer), ("build/fourfold", program),
                               ("build-racecheck/fourfold", program), ("tools/progress.py", "")):
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_text(text + "\n")
                (folder / name).chmod(0o755)
            script = (f'set -euo pipefail; cd {folder}; jobs=1; fail() {{ echo "dev: $2"; exit "$1"; }}; set_up() {{ :; }}; '
                      f'build() {{ :; }}; source {ROOT}/tools/gpu.sh; command_gpu "$@"')

            def gpu(*words, races="nothing"):
                return run("bash", "-c", script, "gpu", *words, RACES=races, FOURFOLD_COMMIT="abc",
                           PATH=f"{folder}/bin:{os.environ['PATH']}")

            result = folder / "bench/results/racecheck-card-1.txt"
            self.assertEqual(gpu("racecheck"), (0, gpu("racecheck")[1]))
            lines = result.read_text().splitlines()
            self.assertIn("--rows KERNEL, Card 1 (driver 580.1), 20", lines[0])
            self.assertEqual([line.split("  ")[0] for line in lines[1:]], ["attend", "pack"])
            for line in lines[1:]:
                self.assertIn("RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings); 3 proofs of 3 passed  abc", line)
            status, output = gpu("racecheck", "pack", races="rows pack")
            self.assertEqual(status, 1, output)
            self.assertIn("a kernel has hazards", output)
            lines = result.read_text().splitlines()
            self.assertEqual([line.split("  ")[0] for line in lines[1:]], ["attend", "pack"])
            self.assertIn("2 hazards", lines[2])
            status, output = gpu("racecheck", races="no rows")
            self.assertEqual(status, 1, output)
            self.assertIn("did not say which kernels there are", output)
            self.assertEqual(result.read_text().splitlines(), lines, "what was known stays")
            status, output = gpu("small-sm")
            self.assertEqual(status, 0, output)
            text = (folder / "bench/results/small-sm-card-1.txt").read_text()
            self.assertEqual(text.count("== as it is"), 2)
            self.assertEqual(text.count("== emulated"), 2)
            self.assertEqual(text.count("102400\n"), 4)
            self.assertEqual(text.count("whole\n"), 4)

    def test_without_a_gpu_one_chip_is_tested_unless_somebody_chose(self):
        every = "sm_90a;sm_120f;sm_121f"
        script = (ROOT / "dev").read_text()
        functions = script[script.index("all_chips="):script.index("build_folder() {")]
        for cached, compiled, gpu, passed, chips in (
            (None, False, False, False, "sm_120f"),
            (None, False, False, True, "none"),
            (None, False, True, True, every),
            (every, False, False, False, "sm_120f"),  # ./dev try came first: it has compiled none
            (every, True, False, True, None),
            ("sm_120f", False, False, False, "sm_120f"),
            ("sm_120f", False, True, False, every),
            ("none", False, False, True, "none"),
            ("none", False, False, False, "sm_120f"),
            ("none", False, True, True, every),
            ("sm_90a", False, False, True, None),
            ("sm_90a", False, True, False, None),
        ):
            with tempfile.TemporaryDirectory() as holder:
                folder = pathlib.Path(holder)
                (folder / "CMakeFiles").mkdir()
                if cached:
                    (folder / "CMakeCache.txt").write_text(f"FOURFOLD_CHIPS:STRING={cached}\n")
                if compiled:
                    (folder / "CMakeFiles" / "Hopper_dense_0.cu.o").touch()
                (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{'echo GPU 0: a card' if gpu else 'exit 9'}\n")
                (folder / "nvidia-smi").chmod(0o755)
                (folder / "nvcc").write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
                (folder / "python3").write_text(f"""#!/bin/sh
[ "$*" = 'tools/long_result.py --done machine-code nvcc V13.0.88' ] && {'true' if passed else 'false'}
""")
                for program in ("python3", "nvcc"):
                    (folder / program).chmod(0o755)

                def answer(question):
                    status, output = run("/bin/bash", "-euo", "pipefail", "-c", f'{functions}\n{question} "{folder}"',
                                         PATH=f"{folder}:{os.environ['PATH']}")
                    self.assertEqual(status, 0, output)
                    return output.strip()

                self.assertEqual(answer("test_chips"), f"-DFOURFOLD_CHIPS={chips}" if chips else "",
                                 (cached, compiled, gpu, passed))
                # ./dev build after ./dev test: with kernels.
                self.assertEqual(answer("build_chips"), f"-DFOURFOLD_CHIPS={every}" if cached == "none" else "")
                # ./dev try without a GPU.
                self.assertEqual(answer("keep_chips=yes; build_chips"), "")

    def test_a_chat_behind_a_test_compiles_no_kernels_for_nobody(self):
        script = (ROOT / "dev").read_text()
        functions = script[script.index("all_chips="):script.index("build_folder() {")]
        with tempfile.TemporaryDirectory() as holder:
            folder = pathlib.Path(holder)
            for name in ("build/fourfold", "nvcc", "nvidia-smi"):
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_text("#!/bin/sh\nexit 9\n")
                (folder / name).chmod(0o755)
            (folder / "build/configured").write_text("ci  -DFOURFOLD_CHIPS=none\n")
            (folder / "build/CMakeCache.txt").write_text("FOURFOLD_CHIPS:STRING=none\n")
            status, output = run("/bin/bash", "-euo", "pipefail", "-c", f"""{functions}
                source {ROOT}/tools/try.sh
                build() {{ echo "chips: '$(build_chips build)'"; }}
                cd {folder} && find_or_build_program""", PATH=f"{folder}:{os.environ['PATH']}")
            self.assertEqual(status, 0, output)
            self.assertEqual(output.strip(), "chips: ''")


class SetUp(unittest.TestCase):
    """A machine of which only the listed programs are visible."""

    def machine(self, **scripts):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        folder = pathlib.Path(holder.name)
        for name in ("bash", "sed", "sort", "head", "grep", "tail", "mktemp", "rm", "cat"):
            (folder / name).symlink_to(f"/usr/bin/{name}" if pathlib.Path(f"/usr/bin/{name}").exists() else f"/bin/{name}")
        for name, body in scripts.items():
            path = folder / name.replace("_plus", "+")
            path.write_text(f"#!/bin/sh\n{body}\n")
            path.chmod(0o755)
        return folder

    def set_up(self, folder, *groups, **environment):
        return run("/bin/bash", ROOT / "tools" / "setup.sh", *groups, PATH=str(folder), CXX="", **environment)

    def test_other_distributions_get_the_list_with_versions(self):
        status, output = self.set_up(self.machine(), "build", "test")
        self.assertEqual(status, 3)
        for text in ("cmake ninja-build g++ python3", "cmake 3.25 or newer", "CLI11 2.1", "GoogleTest 1.12", "nvcc 12.9"):
            self.assertIn(text, output)

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_root_installs_and_says_so_in_one_line(self):
        folder = self.machine()
        log = folder / "log"
        (folder / "apt-get").write_text(f'#!/bin/sh\necho "$@" >>{log}\nexit 1\n')
        (folder / "apt-get").chmod(0o755)
        status, output = self.set_up(folder, "build")
        self.assertEqual(status, 3)  # the fake fails, and that is passed on
        self.assertIn("setup: installing cmake ninja-build g++ python3", output)
        self.assertIn("update", log.read_text())

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to become somebody else")
    def test_without_root_or_terminal_the_line_is_shown(self):
        folder = self.machine()
        (folder / "apt-get").write_text("#!/bin/sh\n")
        (folder / "apt-get").chmod(0o755)
        folder.chmod(0o755)
        script = folder / "setup.sh"
        script.write_text((ROOT / "tools" / "setup.sh").read_text())
        done = subprocess.run(["/bin/bash", str(script), "build"], capture_output=True, text=True, user=65534,
                              stdin=subprocess.DEVNULL, env={"PATH": str(folder)})
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("sudo apt-get install -y --no-install-recommends --no-remove cmake", done.stderr)

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_boost_is_what_apt_offers_from_1_81_on(self):
        def asked(own, beside):
            """What is installed where libboost-dev is of this version and these stand beside it."""
            policy = f"echo libboost-dev:; echo '  Candidate: {own}'" if own else "true"
            names = "; ".join(f"echo libboost{version}-dev" for version in beside) or "true"
            folder = self.machine(**{"apt-get": "exit 1", "apt-cache":
                                     f'if [ $1 = policy ]; then {policy}; else {names}; fi'})
            (folder / "include").mkdir()
            return self.set_up(folder, "build", FOURFOLD_HEADER_FOLDERS=str(folder / "include"))

        for own, beside, package in (("1.74.0.3", ("1.74", "1.81"), "libboost1.81-dev"),  # Debian 12
                                     ("1.83.0.2+b2", ("1.83", "1.88"), "libboost-dev"),  # Debian 13
                                     ("1.83.0.1ubuntu2", ("1.83",), "libboost-dev"),  # Ubuntu 24.04
                                     ("1.90.0", (), "libboost-dev")):
            status, output = asked(own, beside)
            self.assertEqual(status, 3)  # the fake apt-get fails
            self.assertIn(f"libcli11-dev {package} libtomlplusplus-dev libssl-dev libedit-dev", output)
        for own, beside in (("1.74.0.3", ("1.74",)), ("", ())):  # Ubuntu 22.04
            status, output = asked(own, beside)
            self.assertEqual(status, 3)
            self.assertNotIn("setup: installing", output)

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_an_old_boost_does_not_count(self):
        folder = self.machine(**{"apt-get": "true", "apt-cache": "true"})
        boost = folder / "include" / "boost"
        boost.mkdir(parents=True)
        (boost / "json.hpp").write_text("")
        for version, enough in (("1_80", False), ("1_81", True), ("1_100", True)):
            (boost / "version.hpp").write_text(f'#define BOOST_LIB_VERSION "{version}"\n')
            _, output = self.set_up(folder, "build", FOURFOLD_HEADER_FOLDERS=str(boost.parent))
            self.assertEqual("apt offers no Boost from 1.81 on" in output, not enough, output)

    def test_an_old_cmake_is_named_with_both_versions(self):
        folder = self.machine(cmake="echo cmake version 3.18.4", ninja="", python3="", c_plus_plus="echo 12",
                              g_plus_plus="echo 12")
        for header in ("CLI/CLI.hpp", "boost/json.hpp", "boost/version.hpp", "gtest/gtest.h", "openssl/ssl.h", "histedit.h"):
            (folder / header).parent.mkdir(exist_ok=True)
            (folder / header).write_text('#define BOOST_LIB_VERSION "1_81"\n')
        status, output = run("/bin/bash", ROOT / "tools" / "setup.sh", "build", "test", PATH=str(folder), CXX="",
                             CPATH=str(folder))
        self.assertEqual(status, 3)
        self.assertIn("3.18.4; fourfold needs 3.25", output)


class Configure(unittest.TestCase):
    def configured(self, folder, *options):
        return run("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DFOURFOLD_CUDA=off", *options)

    def test_without_googletest_the_tests_are_left_out_unless_asked_for(self):
        missing = "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=TRUE"
        with tempfile.TemporaryDirectory() as folder:
            status, output = self.configured(folder, missing)
            self.assertEqual(status, 0, output)
            self.assertIn("fourfold: GoogleTest was not found (Debian: libgtest-dev), so the tests are left out", output)
            plan = (pathlib.Path(folder) / "build.ninja").read_text()
            self.assertNotIn("test_base", plan)
            self.assertNotIn("-Werror", plan, "warnings are errors for those who ask for it")
            status, output = self.configured(folder, missing, "-DFOURFOLD_TESTS=ON", "-DFOURFOLD_WERROR=ON")
            self.assertNotEqual(status, 0)
            self.assertIn("GoogleTest was not found", output)
            status, output = self.configured(folder, missing, "-DFOURFOLD_TESTS=OFF")
            self.assertEqual(status, 0, output)
            self.assertIn("-Werror", (pathlib.Path(folder) / "build.ninja").read_text())

    def test_without_libedit_chat_is_built_plainly_and_loudly(self):
        with tempfile.TemporaryDirectory() as folder:
            status, output = self.configured(folder, "-DFOURFOLD_TESTS=OFF", "-DFOURFOLD_EDIT=off")
            self.assertEqual(status, 0, output)
            self.assertIn("libedit was not found (Debian: libedit-dev), or FOURFOLD_EDIT is off", " ".join(output.split()))
            self.assertIn("line_editor_none.cpp", (pathlib.Path(folder) / "build.ninja").read_text())

    def test_the_presets_of_developers_make_errors_of_warnings(self):
        presets = {preset["name"]: preset.get("cacheVariables", {})
                   for preset in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}
        strict = {name for name, variables in presets.items() if variables.get("FOURFOLD_WERROR") == "ON"}
        self.assertEqual(strict, {"ci", "cross-x86-64", "gcc-13", "gcc-14", "clang-16", "clang-19"})
        # g++ warns of more under sanitizers; said, for a folder from before keeps what it was told.
        for name in ("asan", "tsan"):
            self.assertEqual(presets[name].get("FOURFOLD_WERROR"), "OFF")
        self.assertIn("build ci", (ROOT / "dev").read_text())


class Together(unittest.TestCase):
    def test_files_whose_own_names_meet_are_compiled_apart(self):
        own = "namespace room {{\nnamespace {{\n{}\n}}  // namespace\n}}  // namespace room\n"
        texts = {
            "function": own.format("int count(int n) { return n; }"),
            "same": own.format("template <class T>\nstd::vector<T> count(const T& value) { return {value}; }"),
            "caller": "#include \"room/count.h\"\nint twice() { return count(1) + count(1); }\n",
            "qualified": "int once() { return other::count(1) + list.count(); }\n",
            "constant": own.format("constexpr int kMost = 3;"),
            "user": "int most() { return kMost; }\n",
            "type": own.format("struct Line {\n  int kMost;\n};"),
            "macro": "#define Line 3\n",
        }
        with tempfile.TemporaryDirectory() as folder:
            def path(name):
                return str(pathlib.Path(folder) / f"{name}.cpp")

            for name, text in texts.items():
                pathlib.Path(path(name)).write_text(text)
            for one, other, meet in (("function", "same", True), ("function", "caller", True), ("caller", "same", True),
                                     ("function", "qualified", False), ("constant", "user", True),
                                     ("constant", "function", False), ("type", "macro", True), ("type", "user", False)):
                groups = together.groups_of([path(one), path(other)], 6)
                self.assertEqual(groups, [] if meet else [[path(one), path(other)]], (one, other))
            free = [path(name) for name in ("function", "qualified", "constant", "macro")]
            self.assertEqual(together.groups_of(free, 2), [free[:2], free[2:]])


class StaleResults(unittest.TestCase):
    def test_a_result_before_a_changed_kernel_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)

            def commit(path, text):
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
                stale_results.git(root, "add", "-A")
                stale_results.git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", path)
                return stale_results.git(root, "rev-parse", "--short", "HEAD").stdout.strip()

            stale_results.git(root, "init", "-q")
            kernels = commit("src/kernels/moe.h", "1\n")
            commit("bench/results/moe-card.csv", f"# commit: {kernels}\n")
            self.assertEqual(stale_results.notices(root), [])
            for path in ("cpu/dot.h", "verify/case.cpp", "reference/dot.cpp", "moe/reference.h", "moe/README.md"):
                commit(f"src/kernels/{path}", "not of the GPU")
            commit("src/kernels/moe.h", "2\n")
            stale_results.changed_files.cache_clear()
            self.assertEqual(stale_results.notices(root),
                             [f"moe-card.csv: of {kernels}; 1 files of kernels have changed since"])
            commit("src/kernels/moe.h", "/* why */ 1  // it is\n\n")
            stale_results.changed_files.cache_clear()
            self.assertEqual(stale_results.notices(root), [])
            commit("src/kernels/new.h", "1 \"//\" 2")
            stale_results.changed_files.cache_clear()
            self.assertEqual(len(stale_results.notices(root)), 1)
            commit("bench/results/verify-card.json", '{"commit": "0123456"}')
            self.assertIn("verify-card.json: of commit 0123456, which this history does not have",
                          stale_results.notices(root))


class Progress(unittest.TestCase):
    def test_failing_builds_and_tests_fail(self):
        with tempfile.TemporaryDirectory() as folder:
            ninja = pathlib.Path(folder) / "build.ninja"
            ninja.write_text("rule no\n  command = echo what went wrong; false\nbuild a: no\n")
            status, output = run(sys.executable, ROOT / "tools" / "progress.py", "ninja", folder, 1)
            self.assertNotEqual(status, 0)
            self.assertIn("what went wrong", output)
            (pathlib.Path(folder) / "CTestTestfile.cmake").write_text('add_test(good "true")\nadd_test(bad "false")\n')
            status, output = run(sys.executable, ROOT / "tools" / "progress.py", "ctest", folder, 1)
            self.assertNotEqual(status, 0)
            self.assertIn("1 passed, 1 failed, 0 skipped", output)
            self.assertIn("bad", output)

    def test_only_what_depends_on_others_has_a_second_try_and_it_is_said(self):
        once = 'add_test(%s "sh" "-c" "test -e %s && exit; touch %s; exit 1")\n'
        for names, fails, line in (
            (["page.once"], False, "1 passed, 0 failed, 0 skipped, 1 unsteady"),
            (["kernels.once"], True, "1 passed, 1 failed, 0 skipped, 0 unsteady"),
            (["page.once", "kernels.once"], True, "1 passed, 2 failed, 0 skipped, 0 unsteady"),
        ):
            with tempfile.TemporaryDirectory() as folder:
                tests = 'add_test(good "true")\n' + "".join(once % (name, name, name) for name in names)
                (pathlib.Path(folder) / "CTestTestfile.cmake").write_text(tests)
                status, output = run(sys.executable, ROOT / "tools" / "progress.py", "ctest", folder, 1)
                self.assertEqual(status != 0, fails, output)
                self.assertIn(line, output)
                self.assertEqual("unsteady: page.once failed beside others" in output, not fails, output)
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "CTestTestfile.cmake").write_text('add_test(page.bad "false")\n')
            self.assertNotEqual(run(sys.executable, ROOT / "tools" / "progress.py", "ctest", folder, 1)[0], 0)


if __name__ == "__main__":
    unittest.main()
