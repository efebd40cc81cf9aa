#!/usr/bin/env python3
"""Counts the instructions of the tiled GEMMs' main loops, by pipe, for the performance model.

    count_instructions.py --plan build/tests/cubin_plan.txt --chip Hopper=build/libfourfold_rows_Hopper.a \\
        --chip Workstation=build/libfourfold_rows_Workstation.a > src/plan/instruction_counts.cpp

Writes a line for each row of moe_gemm whose products are mma: how many instructions a warp issues for each of them. The
table is committed, so that a build without nvcc has it; run this again when the kernel or the compiler has changed. It
needs nvdisasm (a package of the CUDA toolkit), on the PATH or named with --nvdisasm. With --check FILE it writes nothing but
what is different in that table, and ends with 1 if something is.

How it looks. A loop is a branch backwards. The smallest one with all products of a column record is the main loop where it
waits for a stage itself (SYNCS); otherwise it runs once for each 64 columns inside the next larger one, which does the
waiting. What ptxas moves out of line behind the loop, the retry of a wait, is not in it.
"""

import argparse
import collections
import re
import subprocess
import sys
import tempfile

import check_cubins

PRODUCTS = {"HMMA": 16 * 8 * 16, "QMMA": 16 * 8 * 32, "OMMA": 16 * 8 * 64}  # multiply-adds of one
PIPES = {
    "fma": "FFMA FMUL FADD HFMA2 HMUL2 HADD2 IMAD FFMA2",
    "alu": "LOP3 SHF PRMT IADD3 IADD ISETP SEL LEA VIADD FMNMX FSETP FSEL MOV PLOP3 VIMNMX IMNMX F2FP BMSK SGXT",
    "memory": "LDS LDSM STS LDG STG LD ST LDC SHFL ATOMS",
}
PIPE_OF = {name: pipe for pipe, names in PIPES.items() for name in names.split()}
ARCHITECTURES = {"Hopper": 90, "Workstation": 120}
CODES = {"Hopper": "sm90", "Workstation": "sm120"}

TABLE = """// Written by tools/count_instructions.py from the machine code.
#include "plan/instruction_counts.h"

#include <array>

namespace fourfold::plan {
namespace {

// clang-format off
constexpr std::array<InstructionCount, @count@> kCounts{{
@lines@
}};
// clang-format on

}  // namespace

std::span<const InstructionCount> instruction_counts() { return kCounts; }

}  // namespace fourfold::plan
"""

LABEL = re.compile(r"(\.L_x_\d+):")
INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T0-9]+\s+)?([A-Z][A-Z0-9_]*)[A-Z0-9_.]*(.*);")
TARGET = re.compile(r"`\((\.L_x_\d+)\)")
SECTION = re.compile(r"\s*\.section\s+\.text\.(\w+)")


def functions_of(text):
    """(symbol, names of instructions, (first, last) of every loop)"""
    symbol, names, labels, branches = None, [], {}, []

    def finished():
        loops = {(labels[target], at) for at, target in branches if labels.get(target, at + 1) <= at}
        return symbol, names, loops

    for line in text.splitlines():
        if match := SECTION.match(line):
            if symbol:
                yield finished()
            symbol, names, labels, branches = match.group(1), [], {}, []
        elif match := LABEL.match(line):
            labels[match.group(1)] = len(names)
        elif match := INSTRUCTION.match(line):
            target = TARGET.search(match.group(2))
            if match.group(1) == "BRA" and target:
                branches.append((len(names), target.group(1)))
            names.append(match.group(1))
    if symbol:
        yield finished()


def main_loop(names, loops, records):
    """Counts by pipe of one pass of a stage: (counts, products of a warp)."""
    def products(loop):
        return sum(names[at] in PRODUCTS for at in range(loop[0], loop[1] + 1))

    def counts(loop):
        return collections.Counter(PIPE_OF.get(name, name if name in PRODUCTS or name == "SYNCS" else "other")
                                   for name in names[loop[0]:loop[1] + 1])

    with_products = sorted((loop for loop in loops if products(loop)), key=lambda loop: loop[1] - loop[0])
    if not with_products:
        raise check_cubins.Unknown("no loop with products")
    inner = with_products[0]
    total = counts(inner)
    if total["SYNCS"]:
        return total, products(inner)
    for outer in with_products[1:]:
        if outer[0] <= inner[0] and inner[1] <= outer[1] and counts(outer)["SYNCS"]:
            once = counts(outer)
            once.subtract(total)
            for name in total:
                once[name] += records * total[name]
            return once, records * products(inner)
    raise check_cubins.Unknown("no loop that waits for a stage")


def disassembled(nvdisasm, data):
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(data)
        file.flush()
        return subprocess.run([nvdisasm, "-c", file.name], capture_output=True, text=True, check=True).stdout


def lines_of(chip, library, rows, nvdisasm):
    for arch, data in check_cubins.cubins_of(library):
        if arch != ARCHITECTURES[chip] or b"moe_gemm" not in data:
            continue
        functions = list(functions_of(disassembled(nvdisasm, data)))
        for (symbol, names, loops), name in zip(functions, check_cubins.demangled([f[0] for f in functions])):
            row = rows.get((chip,) + check_cubins.key_of_symbol(name))
            if row is None or not row.name.startswith("moe_gemm ") or "wgmma" in row.path:
                continue
            if chip == "Hopper" and row.path == "w4a4":
                continue  # emulated, a proof
            records = int(row.name.split()[1].split("x")[2]) // 64
            counts, products = main_loop(names, loops, records)
            kind = next(name for name in PRODUCTS if counts[name])
            issued = sum(counts.values())
            yield (f'    {{"{row.name}", "{CODES[chip]}", {PRODUCTS[kind]}, '
                   f"{issued / products:.2f}, {counts['alu'] / products:.2f}, {counts['fma'] / products:.2f}, "
                   f"{counts['memory'] / products:.2f}}},")


def differences(lines, table, chips):
    """Lines of a committed table that are not so (-) and those that should be there (+), of these chips."""
    codes = [f'", "{CODES[chip]}", ' for chip in chips]
    committed = {line for line in table.splitlines() if any(code in line for code in codes)}
    return ["-" + line for line in sorted(committed - set(lines))] + \
        ["+" + line for line in sorted(set(lines) - committed)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", required=True)
    parser.add_argument("--chip", action="append", required=True, metavar="CHIP=LIBRARY")
    parser.add_argument("--nvdisasm", default="nvdisasm")
    parser.add_argument("--check", metavar="FILE")
    options = parser.parse_args()
    rows = check_cubins.planned_rows(options.plan)
    lines, chips = [], []
    for chip in options.chip:
        name, _, library = chip.partition("=")
        chips.append(name)
        lines += sorted(lines_of(name, library, rows, options.nvdisasm))
    if options.check:
        with open(options.check) as file:
            different = differences(lines, file.read(), chips)
        print("\n".join(different) or f"{len(lines)} rows are as in {options.check}")
        return 1 if different or not lines else 0
    print(TABLE.replace("@count@", str(len(lines))).replace("@lines@", "\n".join(lines)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
