#!/usr/bin/env python3
"""How many kernels of two row libraries have the same machine code: what a change left alone.

    compare_code.py OLD/libfourfold_rows_Hopper.a NEW/libfourfold_rows_Hopper.a

Kernels are compared by their instructions, whatever their names. Prints the counts and, by their mangled names, the kernels of
each side whose code the other does not have. Ends with 0 whether they differ or not.
"""
import struct
import sys

from check_cubins import cubins_of


def codes(library):
    """{(architecture, mangled name): instructions} of every kernel."""
    found = {}
    for arch, elf in cubins_of(library):
        section_offset = struct.unpack_from("<Q", elf, 40)[0]
        count, names_index = struct.unpack_from("<HH", elf, 60)
        sections = [struct.unpack_from("<IIQQQQIIQQ", elf, section_offset + 64 * i) for i in range(count)]
        names = elf[sections[names_index][4]:][:sections[names_index][5]]
        for section in sections:
            name = names[section[0]:names.index(b"\0", section[0])].decode()
            if name.startswith(".text."):
                found[arch, name[len(".text."):]] = elf[section[4]:section[4] + section[5]]
    return found


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    old, new = codes(sys.argv[1]), codes(sys.argv[2])
    if not old or not new:
        sys.exit(f"{len(old)} and {len(new)} kernels: not two libraries of rows")
    for here, there, what in ((old, new, "gone"), (new, old, "new")):
        others = set(there.values())
        for (arch, name), code in sorted(here.items()):
            if code not in others:
                print(f"{what}: sm_{arch} {name}")
    same = sum(code in set(new.values()) for code in old.values())
    print(f"{same} of {len(old)} kernels have the same machine code; there are {len(new)} now")


if __name__ == "__main__":
    main()
