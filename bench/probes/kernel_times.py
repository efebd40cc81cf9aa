"""Kernels of a trace (kernel_trace.cpp) by their time: kernel_times.py TRACE [LINES]

Of each kernel and grid: how many ran, the median of end minus begin, and what it adds: the median of its end minus the end of the
kernel before it, which is what a step waits for where kernels begin early (dependent launch). Microseconds.
"""
import collections
import re
import statistics
import subprocess
import sys

APART_NS = 20000  # of two kernels between which a step ends


def read(path):
    with open(path) as file:
        rows = [line.rstrip("\n").split(" ", 6) for line in file]
    return sorted((*(int(number) for number in row[:6]), row[6]) for row in rows)


def short_names(names):
    shown = subprocess.run(["c++filt"], input="\n".join(names), text=True, stdout=subprocess.PIPE, check=True).stdout.split("\n")
    return {name: re.sub(r"fourfold::|void row_kernel<|kernels::", "", text).split(">(")[0][:140] for name, text in zip(names, shown)}


def main(path, lines=30):
    rows = read(path)
    groups = collections.defaultdict(list)
    for i, row in enumerate(rows):
        groups[row[6], row[2]].append(i)
    names = short_names(sorted({row[6] for row in rows}))
    print(f"{len(rows)} kernels\n{'count':>6} {'takes':>8} {'adds':>8} blocks threads registers shared")
    by_time = sorted(groups.items(), key=lambda group: -sum(rows[i][1] - rows[i][0] for i in group[1]))
    for (name, blocks), places in by_time[:lines]:
        takes = statistics.median(rows[i][1] - rows[i][0] for i in places) / 1e3
        adds = [rows[i][1] - rows[i - 1][1] for i in places if i > 0 and rows[i][0] - rows[i - 1][1] < APART_NS]
        _, _, _, threads, registers, shared, _ = rows[places[0]]
        print(f"{len(places):6} {takes:8.2f} {statistics.median(adds) / 1e3 if adds else 0:8.2f} {blocks:6} {threads:7} {registers:9} "
              f"{shared:6} {names[name]}")


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    main(sys.argv[1], *(int(word) for word in sys.argv[2:]))
