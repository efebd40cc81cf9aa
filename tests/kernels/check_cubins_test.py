#!/usr/bin/env python3
"""Shows that tools/check_cubins.py finds what it looks for: compiles faulty_rows.cu and expects each fault to be named.

    check_cubins_test.py NVCC CHECK_CUBINS FOLDER
"""

import pathlib
import subprocess
import sys


def release_of(library, check):
    """As the script reads it from a cubin."""
    sys.path.insert(0, str(pathlib.Path(check).parent))
    import check_cubins
    return {check_cubins.release_of(data) for _, data in check_cubins.cubins_of(library)}.pop()


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
    # Sound is larger than its limit, WrongThreads as large as it may be; the last one does not exist.
    code = folder / "faulty_code.txt"
    limits = "Sound\t16\t255\nWrongThreads\t1000000\t255\nNoSuchRow\t16\t255\n"
    release = release_of(library, check)
    code.write_text(f"# rows\n{release}\n{limits}")
    run = subprocess.run([sys.executable, check, "--plan", plan, "--chip", f"Hopper:90={library}", "--code", code],
                         capture_output=True, text=True)
    print(run.stdout)
    expected = {"Sound": "bytes of machine code", "NoSuchRow": "there is no such row", "LocalMemory": "bytes of local memory", "StaticShared": "256 bytes of static shared memory",
                "ManyRegisters": "registers; 4 are planned", "WrongThreads": "128 threads; 256 are planned",
                "WrongInstruction": "0 HMMA instructions", "Missing": "planned, but not in", "Unplanned": "is no planned row",
                "sm_90:": "calls __cuda_syscall"}
    lines = run.stdout.splitlines()
    problems = [f"{name}: '{text}' is not reported once" for name, text in expected.items()
                if sum(name in line and text in line for line in lines) != 1]
    if any("WrongThreads" in line and "machine code" in line for line in lines):
        problems.append("WrongThreads is within its limit")
    if run.returncode != 1 or len(lines) != len(expected) + 1:
        problems.append(f"exit status {run.returncode}, {len(lines)} lines")
    # Code of another compiler is not compared, and that is said.
    code.write_text(f"another release\n{limits}")
    run = subprocess.run([sys.executable, check, "--plan", plan, "--chip", f"Hopper:90={library}", "--code", code],
                         capture_output=True, text=True)
    if "bytes of machine code;" in run.stdout or f"machine code of {release} is not compared" not in run.stdout:
        problems.append(f"another compiler: {run.stdout}")
    # What it cannot read is an error, not a pass.
    other = folder / "zstd_rows.o"
    subprocess.run([nvcc, "-std=c++20", "-Xfatbin", "-compress-all", "--compress-mode=size",
                    "-gencode=arch=compute_90a,code=sm_90a", "-c", "-o", other, source], check=True)
    run = subprocess.run([sys.executable, check, "--plan", plan, "--chip", f"Hopper:90={other}"], capture_output=True, text=True)
    if run.returncode != 2 or "zstd" not in run.stdout:
        problems.append(f"zstd: exit status {run.returncode}: {run.stdout}{run.stderr}")
    print("\n".join(problems) or "every fault was found")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
