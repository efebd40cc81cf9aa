#!/usr/bin/env python3
"""Compares the machine code in the built row libraries with the plan.

    check_cubins.py --plan cubin_plan.txt --chip Hopper:90=libfourfold_rows_Hopper.a --chip Workstation:120,121=...

The plan is what the program cubin_plan prints (tests/kernels/cubin_plan.cpp).

For every kernel of every chip (sm_90a; sm_120f and sm_121f): no local memory (spills live there), no __cuda_syscall,
the tensor-core instruction of its path and no other, at most the planned registers, the planned threads, no static shared memory.
Every planned row must be there, and no row may be there that is not planned.

    --code FILE: rows of sm_90a whose machine code may not grow, a line each: name, bytes, registers, separated by tabs; the first
line is the compiler's release, since another one makes other code: then nothing is compared, and the last line says so.

How it looks. It needs no tool of the CUDA toolkit besides the compiler that built the libraries: cuobjdump and nvdisasm
are packages of their own and often missing. A library holds fat binaries; an entry of one is a cubin, an ELF file,
plain or compressed with LZ4 (nvcc --compress-mode=speed). Registers, stack and launch bounds are attributes in its
.nv.info sections; an instruction is 16 bytes and its lowest 12 bits say which. These layouts are not documented by
NVIDIA; they were read off the output of nvcc 13.0 and checked against nvdisasm. A layout the script does not know ends
in an error, never in a pass.

What it cannot see. Shared memory a launch asks for is not in a cubin: the launch passes sizeof the storage, which is the
plan's number; the script proves that nothing comes on top of it. ptxas does not store spills as such: a kernel without a
stack frame has none, and a frame for another reason (an array indexed at run time) is reported as well. Rows
of sm_90a that are there for proof only (emulated FP4, and what reads its records) may spill.
"""

import argparse
import collections
import struct
import subprocess
import sys

FATBIN_MAGIC = b"\x50\xed\x55\xba\x01\x00\x10\x00"  # magic, version 1, header of 16 bytes
KIND_ELF = 2
FLAG_LZ4, FLAG_ZSTD = 0x2000, 0x8000
EM_CUDA = 190

# Attributes of .nv.info: (format byte, attribute byte), then a size and a value.
ATTRIBUTE_SIZED = 4
REGCOUNT, FRAME_SIZE, MAX_THREADS = 0x2F, 0x11, 0x05
RELEASE = b"Cuda compilation tools, release "  # in .note.nv.tkinfo, up to a zero

# What the rows of --code may grow by: a change elsewhere moves a few instructions; what was compiled into them by mistake was
# 1.0 % (a bias that one model has) to 100 % (a router's other rules).
CODE_GROWTH = 0.005

# The lowest 12 bits of an instruction.
OPCODES = {"HMMA": 0x23C, "HGMMA": 0xDF0, "QGMMA": 0xDF3, "QMMA": 0x27A, "OMMA": 0x47F}
# What the code of a path must consist of, by chip; None: no tensor-core instruction. W4A4 on Hopper is emulated with fp16 products.
PROVED_ON_HOPPER = ("w4a4", "w4a16-fp4-mma")  # rows of chips with the FP4 instruction: they serve nobody on Hopper
EXPECTED = {
    ("Hopper", "w4a16-mma"): "HMMA",
    ("Hopper", "w4a16-fp4-mma"): "HMMA",
    ("Hopper", "w4a16-wgmma"): "HGMMA",
    ("Hopper", "w8a16-mma"): "HMMA",
    ("Hopper", "w8a16-wgmma"): "HGMMA",
    ("Hopper", "w8a8-wgmma"): "QGMMA",
    ("Hopper", "w16a16-mma"): "HMMA",
    ("Hopper", "w16a16-wgmma"): "HGMMA",
    ("Hopper", "w4a4"): "HMMA",
    ("Workstation", "w4a16-mma"): "HMMA",
    ("Workstation", "w4a16-fp4-mma"): "HMMA",
    ("Workstation", "w8a16-mma"): "HMMA",
    ("Workstation", "w8a8-mma"): "QMMA",
    ("Workstation", "w16a16-mma"): "HMMA",
    ("Workstation", "w4a4"): "OMMA",
    ("Hopper", "step"): None,
    ("Hopper", "step-mma"): "HMMA",
    ("Hopper", "step-wgmma"): "HGMMA",
    ("Workstation", "step"): None,
    ("Workstation", "step-mma"): "HMMA",
    ("Hopper", "basic"): None,
    ("Workstation", "basic"): None,
}
RESERVED_SHARED_BYTES = 1024  # ptxas counts the driver's share of a block's shared memory with the kernel's own


class Unknown(Exception):
    """The file is not laid out as this script knows it."""


Row = collections.namedtuple("Row", "chip function type name path format threads registers shared_bytes")
Kernel = collections.namedtuple("Kernel", "symbol registers frame_bytes threads shared_bytes opcodes code_bytes")


def lz4_block(data, size):
    """One LZ4 block: literals and matches, alternately."""
    out = bytearray()
    at = 0

    def length(nibble, at):
        if nibble == 15:
            while True:
                more = data[at]
                at += 1
                nibble += more
                if more != 255:
                    break
        return nibble, at

    while at < len(data):
        token = data[at]
        literals, at = length(token >> 4, at + 1)
        out += data[at:at + literals]
        at += literals
        if at >= len(data):
            break
        distance = data[at] | data[at + 1] << 8
        count, at = length(token & 15, at + 2)
        count += 4
        start = len(out) - distance
        if distance == 0 or start < 0:
            raise Unknown("a match that points before the data")
        while count > 0:  # a match may overlap itself
            piece = out[start:start + count]
            out += piece
            count -= len(piece)
    if len(out) != size:
        raise Unknown(f"{len(out)} bytes came out of {size}")
    return bytes(out)


def cubins_of(library):
    """(architecture, ELF bytes) of every cubin in the library's fat binaries."""
    with open(library, "rb") as file:
        data = file.read()
    at = data.find(FATBIN_MAGIC)
    while at >= 0:
        total = struct.unpack_from("<Q", data, at + 8)[0]
        entry, end = at + 16, at + 16 + total
        while entry < end:
            kind, _, header, size, compressed, _, _, arch = struct.unpack_from("<HHIQIIII", data, entry)
            flags = struct.unpack_from("<Q", data, entry + 40)[0]
            plain = struct.unpack_from("<Q", data, entry + 56)[0]
            if not 64 <= header <= 4096 or entry + header + size > end:
                raise Unknown(f"{library}: an entry of {size} bytes with a header of {header}")
            payload = data[entry + header:entry + header + size]
            if kind == KIND_ELF:
                if flags & FLAG_ZSTD:
                    raise Unknown(f"{library}: the cubins are compressed with zstd, which Python does not read; "
                                  "build with nvcc --compress-mode=speed")
                if flags & FLAG_LZ4:
                    payload = lz4_block(payload[:compressed], plain)
                if payload[:4] != b"\x7fELF":
                    raise Unknown(f"{library}: a cubin that is no ELF file (flags {flags:#x})")
                yield arch, payload
            entry += header + size
        at = data.find(FATBIN_MAGIC, end)


class Cubin:
    """Sections and symbols of a 64-bit ELF file."""

    def __init__(self, data):
        self.data = data
        machine = struct.unpack_from("<H", data, 18)[0]
        if data[4] != 2 or machine != EM_CUDA:
            raise Unknown(f"an ELF file of class {data[4]} for machine {machine}")
        table = struct.unpack_from("<Q", data, 40)[0]
        entry_bytes, count, names = struct.unpack_from("<HHH", data, 58)
        headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * entry_bytes) for i in range(count)]
        strings = headers[names]
        self.sections = {}
        for header in headers:
            name = self.text(strings[4] + header[0])
            self.sections[name] = header
        self.symbols = self.read_symbols(headers)

    def text(self, offset):
        return self.data[offset:self.data.index(b"\0", offset)].decode()

    def read_symbols(self, headers):
        header = self.sections[".symtab"]
        strings = headers[header[6]]
        return [self.text(strings[4] + struct.unpack_from("<I", self.data, header[4] + at)[0])
                for at in range(0, header[5], 24)]

    def contents(self, name):
        header = self.sections[name]
        return self.data[header[4]:header[4] + header[5]]

    def size(self, name):
        return self.sections[name][5] if name in self.sections else 0

    def attributes(self, name):
        """(attribute, value bytes) of one .nv.info section."""
        data = self.contents(name)
        at = 0
        while at < len(data):
            form, attribute, size = struct.unpack_from("<BBH", data, at)
            at += 4
            if form == ATTRIBUTE_SIZED:
                yield attribute, data[at:at + size]
                at += size
            elif form not in (1, 2, 3):  # no value, or one of at most two bytes in place of the size
                raise Unknown(f"{name}: an attribute of format {form}")


def opcodes_of(code):
    if len(code) % 16:
        raise Unknown(f"{len(code)} bytes of code; an instruction has 16")
    counts = collections.Counter(struct.unpack_from("<H", code, at)[0] & 0xFFF for at in range(0, len(code), 16))
    return {name: counts[opcode] for name, opcode in OPCODES.items()}


def kernels_of(cubin):
    registers, frames = {}, {}
    for attribute, value in cubin.attributes(".nv.info"):
        if attribute in (REGCOUNT, FRAME_SIZE):
            symbol, number = struct.unpack("<II", value)
            (registers if attribute == REGCOUNT else frames)[cubin.symbols[symbol]] = number
    for section in cubin.sections:
        if not section.startswith(".text."):
            continue
        symbol = section[len(".text."):]
        threads = [struct.unpack("<III", value)[0] for attribute, value in cubin.attributes(f".nv.info.{symbol}")
                   if attribute == MAX_THREADS]
        if symbol not in registers or symbol not in frames or len(threads) != 1:
            raise Unknown(f"{symbol}: registers, frame or launch bounds are not in .nv.info")
        shared_bytes = max(0, cubin.size(f".nv.shared.{symbol}") - RESERVED_SHARED_BYTES)
        instructions = cubin.contents(section)
        yield Kernel(symbol, registers[symbol], frames[symbol], threads[0], shared_bytes, opcodes_of(instructions),
                     len(instructions))


def demangled(symbols):
    """Readable names; spaces are a matter of taste among demanglers, so there are none."""
    text = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True).stdout
    return [name.replace(" ", "") for name in text.splitlines()]


def key_of_symbol(name):
    """'voidfourfold::kernels::row_kernel<T>(P)' -> ('row_kernel', 'T')"""
    before, _, rest = name.partition("<")
    depth, end = 1, 0
    while depth:
        depth += {"<": 1, ">": -1}.get(rest[end], 0)
        end += 1
    return before.split("::")[-1], rest[:end - 1]


def faults_of_row(row, kernel):
    proof_only = row.chip == "Hopper" and row.path in PROVED_ON_HOPPER
    if kernel.frame_bytes and not proof_only:
        yield f"{kernel.frame_bytes} bytes of local memory: it spills, or indexes an array at run time"
    if kernel.registers > row.registers:
        yield f"{kernel.registers} registers; {row.registers} are planned"
    if kernel.threads != row.threads:
        yield f"launch bounds of {kernel.threads} threads; {row.threads} are planned"
    if kernel.shared_bytes:
        yield f"{kernel.shared_bytes} bytes of static shared memory on top of the planned {row.shared_bytes:,}"
    expected = EXPECTED[row.chip, row.path]
    for name, count in kernel.opcodes.items():
        if (count > 0) != (name == expected):
            yield f"{count} {name} instructions; path {row.path} is made of {expected or 'none'}"


def check_cubin(chip, arch, data, rows, seen, problems, code):
    cubin, release = Cubin(data), release_of(data)
    if b"__cuda_syscall" in data:
        problems.append(f"{chip} sm_{arch}: calls __cuda_syscall")
    kernels = list(kernels_of(cubin))
    for kernel, name in zip(kernels, demangled([kernel.symbol for kernel in kernels])):
        key = key_of_symbol(name)
        row = rows.get((chip,) + key)
        if row:
            seen[chip, arch].add(key)
            found = list(faults_of_row(row, kernel))
            if code:
                found += code.faults_of(row, kernel, release)
        else:
            found = ["is no planned row"]
        problems += [f"{chip} sm_{arch} {row.name if row else '::'.join(key)}: {problem}" for problem in found]
    return len(kernels)


def release_of(data):
    at = data.find(RELEASE)
    return data[at:data.index(b"\0", at)].decode() if at >= 0 else "a release that the cubin does not name"


class CodeLimits:
    """The rows of --code and what was found of them."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            lines = [line.rstrip("\n") for line in file if not line.startswith("#")]
        self.release, self.others, self.seen = lines[0], set(), set()
        self.limits = {}
        for line in lines[1:]:
            name, code_bytes, registers = line.split("\t")
            self.limits[name] = (int(code_bytes), int(registers))

    def faults_of(self, row, kernel, release):
        if row.chip != "Hopper" or row.name not in self.limits:
            return
        self.seen.add(row.name)
        if release != self.release:
            self.others.add(release)
            return
        code_bytes, registers = self.limits[row.name]
        if kernel.code_bytes > code_bytes * (1 + CODE_GROWTH):
            yield (f"{kernel.code_bytes:,} bytes of machine code; one user's step was measured with {code_bytes:,}: what it does not "
                   "need belongs into a row of its own")
        if kernel.registers > registers:
            yield f"{kernel.registers} registers; one user's step was measured with {registers}"

    def missing(self):
        return [f"{name}: its machine code is to be compared, but there is no such row" for name in self.limits if name not in self.seen]


def planned_rows(path):
    rows = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            fields = line.rstrip("\n").split("\t")
            row = Row(*fields[:6], *map(int, fields[6:]))
            rows[row.chip, row.function, row.type.replace(" ", "")] = row
    return rows


def main():
    parser = argparse.ArgumentParser(description="Compares built kernels with the plan.")
    parser.add_argument("--plan", required=True, metavar="FILE", help="what the program cubin_plan prints")
    parser.add_argument("--chip", action="append", required=True, metavar="NAME:ARCHITECTURES=LIBRARY")
    parser.add_argument("--code", metavar="FILE", help="rows whose machine code may not grow")
    options = parser.parse_args()
    rows = planned_rows(options.plan)
    code = CodeLimits(options.code) if options.code else None

    seen, problems, count = collections.defaultdict(set), [], 0
    for what, library in (item.split("=", 1) for item in options.chip):
        chip, architectures = what.split(":")
        for arch, data in cubins_of(library):
            count += check_cubin(chip, arch, data, rows, seen, problems, code)
        for arch in map(int, architectures.split(",")):
            for row in rows.values():
                if row.chip == chip and (row.function, row.type.replace(" ", "")) not in seen[chip, arch]:
                    problems.append(f"{chip} sm_{arch} {row.name}: planned, but not in {library}")
    if code:
        problems += code.missing()
    for problem in problems:
        print(problem)
    for release in sorted(code.others) if code else ():
        print(f"machine code of {release} is not compared with that of {code.release}")
    print(f"{count} kernels, {len(rows)} planned rows, {len(problems)} problems")
    return 1 if problems or not count else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Unknown as unknown:
        print(f"check_cubins: {unknown}")
        sys.exit(2)
