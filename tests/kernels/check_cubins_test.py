#!/usr/bin/env python3
"""Shows that tools/check_cubins.py finds what it looks for: compiles faulty_rows.cu and expects each fault to be named.

    check_cubins_test.py NVCC CHECK_CUBINS FOLDER
"""

import pathlib
import subprocess
import sys


def main():
    nvcc, check, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    source = pathlib.Path(__file__).with_name("faulty_rows.cu")
    library = folder / "faulty_rows.o"
    subprocess.run([nvcc, "-std=c++20", "-Xfatbin", "-compress-all", "--compress-mode=speed",
                    "-gencode=arch=compute_90a,code=sm_90a", "-c", "-o", library, source], check=True)
    rows = {name: [128, 64] for name in ("Sound", "LocalMemory", "StaticShared", "ManyRegisters", "WrongThreads",
                                         "WrongInstruction", "Missing")}
    rows["ManyRegisters"][1] = 4
    rows["WrongThreads"][0] = 256
    plan = folder / "faulty_plan.txt"
    plan.write_text("".join(f"Hopper\ttile_kernel\tfaulty::{name}\t{name}\tw4a16-mma\tnvfp4\t{threads}\t{registers}\t1024\n"
                            for name, (threads, registers) in rows.items()))
    run = subprocess.run([sys.executable, check, "--plan", plan, "--chip", f"Hopper={library}"], capture_output=True,
                         text=True)
    print(run.stdout)
    expected = {"LocalMemory": "bytes of local memory", "StaticShared": "256 bytes of static shared memory",
                "ManyRegisters": "registers; 4 are planned", "WrongThreads": "128 threads; 256 are planned",
                "WrongInstruction": "0 HMMA instructions", "Missing": "planned, but not in", "Unplanned": "is no planned row",
                "sm_90:": "calls __cuda_syscall"}
    lines = run.stdout.splitlines()
    problems = [f"{name}: '{text}' is not reported once" for name, text in expected.items()
                if sum(name in line and text in line for line in lines) != 1]
    if any("Sound" in line for line in lines):
        problems.append("Sound has no fault")
    if run.returncode != 1 or len(lines) != len(expected) + 1:
        problems.append(f"exit status {run.returncode}, {len(lines)} lines")
    # What it cannot read is an error, not a pass.
    other = folder / "zstd_rows.o"
    subprocess.run([nvcc, "-std=c++20", "-Xfatbin", "-compress-all", "--compress-mode=size",
                    "-gencode=arch=compute_90a,code=sm_90a", "-c", "-o", other, source], check=True)
    run = subprocess.run([sys.executable, check, "--plan", plan, "--chip", f"Hopper={other}"], capture_output=True, text=True)
    if run.returncode != 2 or "zstd" not in run.stdout:
        problems.append(f"zstd: exit status {run.returncode}: {run.stdout}{run.stderr}")
    print("\n".join(problems) or "every fault was found")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
