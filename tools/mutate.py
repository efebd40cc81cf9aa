"""Breaks the sources on purpose, one place at a time, and looks whether a test notices.

    mutate.py [--only 1-10,31] [--again] [--copy FOLDER] [--jobs N]

tools/mutations.json has the mutations and which test programs belong to which folder (NAME of test_NAME, NAME:FILTER for
some of its tests, ctest:NAME for a Python test that runs the program fourfold); docs/mutations.txt gets a line for each. The
working tree is never changed: mutations are made in a copy of the last commit with a build of its own, build-mutate/, or in
--copy, a checkout without changes and with a build folder. A run that was stopped goes on where it was; --again runs also
what has its line. Ends with 1 when fewer than 56 of 60, as a share, are caught or a survivor has no reason.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LEAST_CAUGHT = 56 / 60
STARTED = re.compile(r"^\[ RUN      \] (\S+)", re.M)
FAILED = re.compile(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", re.M)
PASSED = re.compile(r"^\[       OK \] (\S+) \((\d+) ms\)", re.M)
CTEST = "ctest:"  # before the name of a test that is no GoogleTest program: a Python test with the program fourfold
TRIES = 3  # where a test fails that passes alone
SLOW_MS = 1000  # what takes longer is run after the others: most mutations need not wait for it
ROW = re.compile(r"^ *(\d+) ([0-9a-f]+) (caught|survived) ")


class Refused(Exception):
    """The list, the copy or the tests are not as they must be."""


class Broken(Refused):
    """A mutation that does not compile; the others are run all the same."""


def shown_program(name):
    return name.removeprefix(CTEST) if name.startswith(CTEST) else f"test_{name}"


def git(folder, *words):
    return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True)


def draws(entry):
    """The mutation itself, then what takes its place when it does not compile."""
    return [entry] + entry.get("next", [])


def require_list(entries, copy):
    ids = [entry["id"] for entry in entries]
    if len(set(ids)) != len(ids):
        raise Refused("two mutations have the same id")
    for entry in entries:
        for one in draws(entry):
            path = copy / one["file"]
            count = path.read_text().count(one["old"]) if path.is_file() else 0
            if count != 1:
                raise Refused(f"mutation {entry['id']}: its text stands {count} times in {one['file']}, not once: "
                              f"{one['old'].strip()}")
            if one["old"] == one["new"]:
                raise Refused(f"mutation {entry['id']} changes nothing")


def tests_of(entry, prefixes, file):
    """The test programs of the longest folder the file is in."""
    found = [prefix for prefix in prefixes if file.startswith(prefix)]
    if "tests" in entry:
        return entry["tests"]
    if not found:
        raise Refused(f"mutation {entry['id']}: no test programs are named for {file}")
    return prefixes[max(found, key=len)]


def run_limited(command, seconds, folder):
    """Status, output; None as status when the time was over. Nothing it started stays behind."""
    process = subprocess.Popen([str(word) for word in command], cwd=folder, text=True, errors="replace",
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True)
    try:
        output = process.communicate(timeout=seconds)[0]
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None, process.communicate()[0]
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


class Runner:
    def __init__(self, root, copy, jobs, slack_seconds=60):
        self.root, self.copy, self.jobs, self.slack = root, copy, jobs, slack_seconds
        self.build = copy / "build"
        self.commit = git(copy, "rev-parse", "--short", "HEAD").stdout.strip()
        self.table = root / "docs" / "mutations.txt"
        self.known_times = self.build / "mutate-seconds.json"

    def make(self, programs):
        names = sorted({"fourfold" if name.startswith(CTEST) else f"test_{name.partition(':')[0]}" for name in programs})
        return run_limited(["ninja", "-C", self.build, f"-j{self.jobs}", *names], 3600, self.copy)

    def program(self, name, *arguments, seconds):
        if name.startswith(CTEST):
            test = f"^{re.escape(name.removeprefix(CTEST))}$"
            return run_limited(["ctest", "--test-dir", self.build, "-R", test, "--no-tests=error"], seconds, self.build)
        return run_limited([self.build / f"test_{name.partition(':')[0]}", *arguments], seconds, self.build)

    def baseline(self, programs):
        """Seconds and slow tests of each program without a mutation. It must pass, or nothing could be said of one."""
        known = json.loads(self.known_times.read_text()) if self.known_times.exists() else {}
        times = known.get(self.commit, {})
        missing = sorted(set(programs) - set(times))
        if missing:
            print(f"without a mutation: {' '.join(missing)}", flush=True)
            status, output = self.make(missing)
            if status != 0:
                raise Refused(f"the tests do not build without a mutation:\n{output[-3000:]}")
        for name in missing:
            begin = time.monotonic()
            status, output = self.program(name, f"--gtest_filter={name.partition(':')[2] or '*'}", seconds=3600)
            failed = sorted(set(FAILED.findall(output)))
            if name.startswith(CTEST):
                status = status and self.program(name, seconds=3600)[0]
            if status != 0 and not (failed and all(self.passes_alone(name, test) for test in failed)):
                raise Refused(f"{shown_program(name)} fails without a mutation: {', '.join(failed)}\n{output[-2000:]}")
            slow = {test: int(ms) / 1000 for test, ms in PASSED.findall(output) if int(ms) > SLOW_MS}
            times[name] = {"seconds": round(time.monotonic() - begin, 1), "slow": slow}
            self.known_times.write_text(json.dumps({self.commit: times}))
        return times

    def passes_alone(self, name, test, seconds=900):
        """In a process of its own, as ./dev test runs it: on a machine under load a test may fail once."""
        return self.program(name, f"--gtest_filter={test}", seconds=seconds)[0] == 0

    def noticed_by(self, name, facts):
        """Which test of the program notices, twice; none when all pass, or only ones fail that pass alone."""
        if name.startswith(CTEST):
            limit = self.slack + 4 * facts["seconds"]
            failed = all(self.program(name, seconds=limit)[0] != 0 for _ in range(2))
            return f"{name.removeprefix(CTEST)} (ctest)" if failed else None
        wanted = name.partition(":")[2] or "*"
        quick = wanted + ((":" if "-" in wanted else "-") + ":".join(facts["slow"]) if facts["slow"] else "")
        slow_seconds = sum(facts["slow"].values())
        for tests, seconds in ((quick, facts["seconds"] - slow_seconds), (":".join(facts["slow"]), slow_seconds)):
            limit = self.slack + 4 * seconds
            for _ in range(TRIES if tests else 0):
                status, output = self.program(name, "--gtest_fail_fast", f"--gtest_filter={tests}", seconds=limit)
                if status == 0:
                    break
                test = (FAILED.findall(output)[:1] or STARTED.findall(output)[-1:] or [""])[0]
                if not test:
                    return f"test_{name}, which does not start"
                if not self.passes_alone(name, test, limit):
                    return f"{'time-out in ' if status is None else ''}{test} (test_{name.partition(':')[0]})"
        return None

    def try_one(self, one, programs, times):
        """caught, survived or broken (does not compile), and by whom."""
        path = self.copy / one["file"]
        before = path.read_text()
        try:
            path.write_text(before.replace(one["old"], one["new"]))
            for _ in range(TRIES):  # it lists the tests by running them, which may fail once on a machine under load
                status, output = self.make(programs)
                if status == 0 or " error: " in output:
                    break
            if status != 0:
                if " error: " in output:
                    return "broken", ""
                print(f"the build fails with {path.name} changed:\n{output[-1500:]}", flush=True)
                return "caught", "the build, which runs the test program to list it"
            for name in programs:
                test = self.noticed_by(name, times[name])
                if test:
                    return "caught", test
            return "survived", ""
        finally:
            path.write_text(before)

    def line_of(self, entry, prefixes, times):
        begin = time.monotonic()
        for number, one in enumerate(draws(entry)):
            before = (self.copy / one["file"]).read_text().split(one["old"])[0]
            place = (before + one["old"].rstrip("\n")).count("\n") + 1
            programs = tests_of(entry, prefixes, one["file"])
            result, test = self.try_one(one, programs, times)
            if result != "broken":
                break
        else:
            raise Broken(f"mutation {entry['id']} does not compile, nor do the {number} draws behind it")
        words = [f"{entry['id']:3} {self.commit} {result:8} {entry['room']:10} {entry['by']:4} {one['file']}:{place}"]
        words.append(shown(one["old"], one["new"]))
        words.append(f"by {test}" if test else f"all of {', '.join(map(shown_program, programs))} passed")
        if number:
            words.append(f"draw {number + 1}: those before did not compile")
        if "note" in entry:
            words.append(entry["note"])
        elif result == "survived":
            words.append("NO REASON GIVEN")
        return " | ".join(words), time.monotonic() - begin

    def rows(self):
        lines = self.table.read_text().splitlines() if self.table.exists() else []
        return {int(found.group(1)): line for line in lines if (found := ROW.match(line))}

    def is_current(self, line, entry):
        """Of this mutation, and of this commit or one with the same sources and tests."""
        commit = ROW.match(line).group(2)
        if commit != self.commit and git(self.copy, "diff", "--quiet", commit, "HEAD", "--", "src", "tests").returncode:
            return False
        return any(f" {one['file']}:" in line and shown(one["old"], one["new"]) in line for one in draws(entry))

    def write(self, rows, total):
        caught = sum(ROW.match(line).group(3) == "caught" for line in rows.values())
        compiler = subprocess.run(["c++", "--version"], capture_output=True, text=True).stdout.split("\n")[0]
        head = [f"date: {datetime.date.today()}", f"commit: {self.commit}",
                f"machine: {platform.machine()}, {os.cpu_count()} cores, {compiler}", "command: tools/mutate.py",
                f"caught: {caught} of {total}, {len(rows)} run; at least {round(LEAST_CAUGHT * total)} are wanted", "",
                "A line: id, commit, result, room, chosen by hand or drawn by the seed, place | what | who noticed | remarks",
                ""]
        self.table.write_text("\n".join(head + [rows[number] for number in sorted(rows)]) + "\n")
        return caught


def shown(old, new):
    """The line that changes, before and after."""
    old_lines, new_lines = old.rstrip("\n").split("\n"), new.rstrip("\n").split("\n")
    while len(old_lines) > 1 and old_lines[0] == new_lines[0]:
        old_lines, new_lines = old_lines[1:], new_lines[1:]
    after = " ".join(line.strip() for line in new_lines).strip()
    return f"{' '.join(line.strip() for line in old_lines)} -> {after if after not in ('', ';') else '(left out)'}"


def wanted_ids(text, all_ids):
    if not text:
        return set(all_ids)
    out = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        out |= set(range(int(first), int(last or first) + 1))
    if not out <= set(all_ids):
        raise Refused(f"there is no mutation {min(out - set(all_ids))}")
    return out


def prepared_copy(root, given, jobs):
    if given:
        copy = pathlib.Path(given).resolve()
        if not (copy / "build" / "build.ninja").exists():
            raise Refused(f"{copy} has no build folder: ./dev test makes one")
        changed = git(copy, "status", "--porcelain", "--", "src", "tests").stdout
        if changed:
            raise Refused(f"{copy} has changes, perhaps of a run that was killed (git checkout src):\n{changed}")
        return copy
    copy = root / "build-mutate"
    head = git(root, "rev-parse", "HEAD").stdout.strip()
    if not head:
        raise Refused(f"{root} is no git checkout with a commit, so no copy of one can be made")
    if git(root, "status", "--porcelain", "--", "src", "tests").stdout:
        print(f"changes that are not committed are left out: the copy is of {head[:7]}", flush=True)
    if not (copy / ".git").exists():
        git(root, "clone", "-q", "--shared", "--no-checkout", str(root), str(copy))
    git(copy, "fetch", "-q", str(root), head)
    if git(copy, "checkout", "-q", "--force", "--detach", head).returncode != 0:
        raise Refused(f"{copy} cannot be brought to {head}: remove it")
    if not (copy / "build" / "build.ninja").exists():
        status, output = run_limited(["cmake", "--preset", "ci", "-DFOURFOLD_CUDA=off", "-DFOURFOLD_TOGETHER=OFF"], 600, copy)
        if status != 0:
            raise Refused(f"cmake failed:\n{output[-3000:]}")
    return copy


def run(options, root=ROOT, slack_seconds=60):
    copy = prepared_copy(root, options.copy, options.jobs)
    given = json.loads((root / "tools" / "mutations.json").read_text())
    entries, prefixes = given["mutations"], given["tests"]
    require_list(entries, copy)
    wanted = wanted_ids(options.only, [entry["id"] for entry in entries])
    runner = Runner(root, copy, options.jobs, slack_seconds)
    rows = runner.rows()
    rows = {number: line for number, line in rows.items() if number in {entry["id"] for entry in entries}}
    todo = [entry for entry in entries if entry["id"] in wanted and
            (options.again or entry["id"] not in rows or not runner.is_current(rows[entry["id"]], entry))]
    needed = [tests_of(entry, prefixes, one["file"]) for entry in todo for one in draws(entry)]
    times = runner.baseline({name for programs in needed for name in programs})
    broken = []
    for number, entry in enumerate(todo):
        try:
            rows[entry["id"]], seconds = runner.line_of(entry, prefixes, times)
        except Broken as error:
            broken.append(str(error))
            continue
        print(f"[{number + 1}/{len(todo)}] {seconds:.0f} s: {rows[entry['id']]}", flush=True)
        runner.write(rows, len(entries))
    caught = runner.write(rows, len(entries))
    if broken:
        raise Refused("\n".join(broken))
    unexplained = [number for number, line in rows.items() if line.endswith("NO REASON GIVEN")]
    print(f"{caught} of {len(entries)} mutations were caught; survivors without a reason: {unexplained or 'none'}")
    return 1 if len(rows) == len(entries) and caught < LEAST_CAUGHT * len(entries) or unexplained else 0


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="ids and ranges of them: 1-10,31")
    parser.add_argument("--again", action="store_true", help="also those that have a line of these sources")
    parser.add_argument("--copy", help="a checkout with a build folder, used instead of build-mutate/")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the copy is restored
    try:
        return run(parser.parse_args(words))
    except Refused as error:
        print(f"mutate: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
