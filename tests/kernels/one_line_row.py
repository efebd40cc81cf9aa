#!/usr/bin/env python3
"""Adds a made-up row to a kernel's list, one line in a copy of the sources, and shows that every reader sees it: plans, the
simulator, proofs, tuning, and, where nvcc is there, the cubin check and the compiled code of both chips.

    one_line_row.py ROOT FOLDER [--jobs N]

The row is one that nobody needs, 24 tokens of a pass; it is also proved on the simulated GPU. Part of ./dev test --long.
"""

import argparse
import importlib.util
import pathlib
import shutil
import subprocess
import sys

LIST = "src/kernels/moe_stream/rows.h"
AFTER = "    Stream<Arch, moe::W4a16Mma, record::Bf16Format,   32,  1,   4,    1,    2>,\n"
LINE = "    Stream<Arch, moe::W4a16Mma, record::Bf16Format,   24,  4,   4,    1,    2>,\n"
NAME = "moe_stream 32x24x256 w16a16-mma bf16"
READERS = ["plan sm90", "plan sm120", "plan sm121", "simulator sm90", "verify sm90", "tune sm90", "simulator sm120",
           "verify sm120", "tune sm120"]


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, text=True, **options)


def copy_tree(root, to):
    """What git knows or would add; nothing that was built."""
    listed = run("git", "-c", f"safe.directory={root}", "-C", root, "ls-files", "-co", "--exclude-standard",
                 capture_output=True).stdout.splitlines()
    for name in listed:
        if (root / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, to / name)


def seen_by(build):
    """{reader: how often it has the row}."""
    text = run(build / "row_readers", NAME, capture_output=True).stdout
    return {line.rsplit(": ", 1)[0]: int(line.rsplit(": ", 1)[1]) for line in text.splitlines()}


def check_chips(source, build, jobs):
    """The cubin plan names the row for both chips, and their compiled parts hold its code."""
    run("cmake", "--build", build, "-j", jobs, "--target", "cubin_plan")
    planned = run(build / "cubin_plan", capture_output=True).stdout.splitlines()
    row = {line.split("\t")[0]: line.split("\t")[2].replace(" ", "") for line in planned if f"\t{NAME}\t" in line}
    if sorted(row) != ["Hopper", "Workstation"]:
        return [f"cubin_plan names it for {sorted(row)}"]
    spec = importlib.util.spec_from_file_location("check_cubins", source / "tools/check_cubins.py")
    check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check)
    problems = []
    for chip, type_name in row.items():
        parts = sorted((build / "rows").glob(f"{chip}_moe_stream_*.cu"))
        objects = [build / f"CMakeFiles/fourfold_rows_{chip}.dir/rows/{part.name}.o" for part in parts]
        run("ninja", "-C", build, f"-j{jobs}", *(path.relative_to(build) for path in objects))
        symbols = [symbol for path in objects for _, data in check.cubins_of(path)
                   for symbol in (kernel.symbol for kernel in check.kernels_of(check.Cubin(data)))]
        if ("row_kernel", type_name) not in {check.key_of_symbol(name) for name in check.demangled(symbols)}:
            problems.append(f"no part of {chip} has its code")
    return problems


def main():
    parser = argparse.ArgumentParser(description="Shows that a row is one line.")
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    root, folder = options.root.resolve(), options.folder.resolve()
    source, build = folder / "source", folder / "build"
    shutil.rmtree(source, ignore_errors=True)
    copy_tree(root, source)
    text = (source / LIST).read_text()
    if text.count(AFTER) != 1:
        print(f"{LIST}: the line to add a row behind is there {text.count(AFTER)} times")
        return 1
    (source / LIST).write_text(text.replace(AFTER, AFTER + LINE))
    run("cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DFOURFOLD_TESTS=ON",
        stdout=subprocess.DEVNULL)
    run("cmake", "--build", build, "-j", options.jobs, "--target", "row_readers")
    seen = seen_by(build)
    problems = [f"'{reader}' does not see it" for reader in READERS if seen.get(reader, 0) < 1]
    if "FOURFOLD_NVCC:FILEPATH=/" in (build / "CMakeCache.txt").read_text():
        problems += check_chips(source, build, options.jobs)
    else:
        print("without nvcc: the chips' compiled parts were not looked at")
    print("\n".join(problems) or f"one line in {LIST}, and all {len(seen)} readers see {NAME}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
