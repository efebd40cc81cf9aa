"""Runs ninja or ctest and shows how far it is and how long it will still take.

    progress.py ninja FOLDER JOBS [TARGET...]
    progress.py ctest FOLDER JOBS [CTEST ARGUMENT...]

On a terminal one line is kept up to date; elsewhere a line appears every 20 seconds. What the tools say about errors is
passed on unchanged. Time left comes from typical costs of the files still to build, corrected by the speed seen so far.
"""
import os
import pathlib
import queue
import re
import resource
import subprocess
import sys
import threading
import time

# Seconds of one core by the object's path, first match wins; the shape matters, the speed seen corrects the scale.
BUILD_COSTS = [
    (r"rows/.*_(dense|attention)_\d\.cu", 30.0),
    (r"rows/.*\.cu", 15.0),
    (r"\.cu\.o", 7.0),
    (r"rows/Simulated_(dense|attention)", 15.0),
    (r"rows/Simulated_", 6.0),
    (r"/Unity/", 5.0),
    (r"src/cli/", 4.0),
    (r"Building CXX.*tests/", 3.0),
    (r"Building", 2.2),
    (r".", 1.0),
]
UNLISTED_COST = 0.5
TEST_COSTS = [
    (r"^clients\.", 18.0),
    (r"^page\.", 12.0),
    (r"^(docs|packaging|doors)\.", 4.0),
    (r"^(cli|sample|engine|model|evaluate|hub)\.", 2.0),
    (r"^(kernels|nodes)\.", 0.5),
    (r".", 0.1),
]
QUIET_SECONDS = 5.0  # shorter work shows nothing on the way
LINE_SECONDS = 20.0  # between lines where there is no terminal
PRIOR_SECONDS = 20.0  # weight of the typical costs against the speed seen


def cost(table, text):
    return next(value for pattern, value in table if re.search(pattern, text))


def span(seconds):
    seconds = int(seconds + 0.5)
    return f"{seconds // 60} min {seconds % 60:02d} s" if seconds >= 60 else f"{seconds} s"


class Progress:
    def __init__(self, verb, costs, jobs):
        self.verb, self.costs, self.jobs = verb, dict(costs), jobs
        self.total, self.done, self.done_cost = len(self.costs), 0, 0.0
        self.total_cost = sum(self.costs.values())
        self.start = self.last_line = time.monotonic()
        self.on_terminal = sys.stdout.isatty()
        self.shown = False

    def finish_one(self, key, total):
        if total != self.total:  # the tool knows of more steps than we listed: cheap ones, mostly
            self.total_cost += (total - self.total) * UNLISTED_COST
            self.total = total
        self.done += 1
        self.done_cost += self.costs.pop(key, UNLISTED_COST)

    def seconds_left(self):
        elapsed = time.monotonic() - self.start
        speed = (self.done_cost + PRIOR_SECONDS) / (elapsed + PRIOR_SECONDS / self.jobs)
        return max(self.total_cost - self.done_cost, 0.0) / speed

    def show(self):
        now = time.monotonic()
        if now - self.start < QUIET_SECONDS:
            return
        text = f"{self.verb} {self.done}/{self.total}, {span(now - self.start)}, about {span(self.seconds_left())} left"
        if self.on_terminal:
            sys.stdout.write(f"\r\033[K{text}")
            sys.stdout.flush()
            self.shown = True
        elif not self.shown or now - self.last_line >= LINE_SECONDS:
            print(text, flush=True)
            self.last_line, self.shown = now, True

    def say(self, text):
        if self.on_terminal and self.shown:
            sys.stdout.write("\r\033[K")
        print(text, flush=True)

    def elapsed(self):
        return time.monotonic() - self.start


def lines_of(process):
    """The process's lines, or None once a second so that the clock moves on."""
    lines = queue.Queue()

    def read():
        for line in process.stdout:
            lines.put(line.rstrip("\n"))
        lines.put(StopIteration)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=1.0)
        except queue.Empty:
            yield None
            continue
        if line is StopIteration:
            return
        yield line


def start(command, **environment):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                            env={**os.environ, **environment})


STATUS = re.compile(r"^\[(\d+)/(\d+)\] (.*)")


def missing_objects(folder, targets):
    """Cost by status text of the objects that do not exist yet. (ninja -n cannot tell: it stops at the glob checks.)"""
    commands = subprocess.run(["ninja", "-C", folder, "-t", "commands", *targets], capture_output=True, text=True).stdout
    costs = {}
    for path in re.findall(r" -o (\S+\.o)\b", commands):
        if not (pathlib.Path(folder) / path).exists():
            text = f"Building {'CUDA' if path.endswith('.cu.o') else 'CXX'} object {path}"
            costs[text] = cost(BUILD_COSTS, text)
    return costs


def ninja(folder, jobs, targets):
    progress = Progress("building", missing_objects(folder, targets), jobs)
    process = start(["ninja", "-C", folder, f"-j{jobs}", *targets], NINJA_STATUS="[%f/%t] ")
    for line in lines_of(process):
        match = STATUS.match(line) if line is not None else None
        if match:
            if not match.group(3).startswith("Re-checking"):
                progress.finish_one(match.group(3), int(match.group(2)))
        elif line and not line.startswith(("ninja: Entering", "ninja: no work", "-- ")):
            progress.say(line)
            continue
        progress.show()
    status = process.wait()
    if status:
        progress.say(f"building {folder} failed after {span(progress.elapsed())}")
    elif progress.done > 1:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)  # machines differ less in this than in minutes
        progress.say(f"built {folder}: {progress.done} steps in {span(progress.elapsed())}, "
                     f"{used.ru_utime + used.ru_stime:.0f} s of CPU time")
    return status


# A name may hold spaces: gtest appends a parameter's value.
RESULT = re.compile(r"^\s*\d+/(\d+) Test\s+#\d+: (\S.*?) \.*\s*((?:\*\*\*|Passed|Skipped).*)")


def test_costs(folder):
    listed = subprocess.run(["ctest", "--test-dir", folder, "-N"], capture_output=True, text=True).stdout
    names = re.findall(r"^\s*Test\s+#\d+: (.*)$", listed, re.M)
    known = {}
    record = pathlib.Path(folder) / "Testing" / "Temporary" / "CTestCostData.txt"
    if record.exists():
        for line in record.read_text().splitlines():
            words = line.rsplit(" ", 2)
            if len(words) == 3:
                known[words[0]] = float(words[2]) + 0.01
    return {name: known.get(name, cost(TEST_COSTS, name)) for name in names}


# Tests that drive browsers and other people's programs. On a busy machine one of them may wait in
# vain for something that no line of ours decides, so whoever fails beside others runs once more, alone: passing then is
# said as "unsteady", failing again fails. What only computes has one try.
WITH_OTHERS = re.compile(r"^(page|clients|hub)\.")


def alone(folder, names):
    """Those of the tests that pass one after the other."""
    steady = []
    for name in names:
        done = subprocess.run(["ctest", "--test-dir", folder, "-R", f"^{re.escape(name)}$", "--no-tests=error"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if done.returncode == 0:
            steady.append(name)
    return steady


def ctest(folder, jobs, arguments):
    progress = Progress("testing", test_costs(folder), jobs)
    process = start(["ctest", "--test-dir", folder, f"-j{jobs}", "--output-on-failure", "--no-tests=error", *arguments])
    failed, skipped = [], []
    for line in lines_of(process):
        match = RESULT.match(line) if line is not None else None
        if match:
            progress.finish_one(match.group(2), int(match.group(1)))
            if "Skipped" in match.group(3) or "Not Run" in match.group(3):
                skipped.append(match.group(2))
            elif not match.group(3).startswith("Passed"):
                failed.append(match.group(2))
                progress.say(line)
        elif line and (failed or "rror" in line) and not re.match(r"\s*Start\s+\d+:", line):
            progress.say(line)
            continue
        progress.show()
    status = process.wait()
    unsteady = alone(folder, failed) if failed and all(map(WITH_OTHERS.match, failed)) else []
    if unsteady and unsteady == failed:
        status = 0
    passed = progress.done - len(failed) - len(skipped)
    progress.say(f"tests: {passed} passed, {len(failed) - len(unsteady)} failed, {len(skipped)} skipped, "
                 f"{len(unsteady)} unsteady in {span(progress.elapsed())}")
    for name in unsteady:
        progress.say(f"  unsteady: {name} failed beside others and passed alone; what it said is above")
    for name in skipped:
        progress.say(f"  skipped: {name}")
    return status


def main(arguments):
    if len(arguments) < 3 or arguments[0] not in ("ninja", "ctest"):
        sys.exit(__doc__)
    return {"ninja": ninja, "ctest": ctest}[arguments[0]](arguments[1], int(arguments[2]), arguments[3:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
