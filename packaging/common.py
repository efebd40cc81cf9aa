"""What every package is made of: the version, the date, and an installed tree of a build."""
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUMMARY = "NVFP4 mixture-of-experts models on CPUs and on GPUs with little shared memory"
COMPLETIONS = {"bash": "share/bash-completion/completions/fourfold", "zsh": "share/zsh/site-functions/_fourfold",
               "fish": "share/fish/vendor_completions.d/fourfold.fish"}
MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of ELF


class PackageError(Exception):
    pass


def run(*command, **options):
    """What a command printed; a failure is an error with everything it said."""
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    except FileNotFoundError as error:
        raise PackageError(f"{command[0]} is not installed") from error
    if done.returncode != 0:
        raise PackageError(f"{' '.join(str(word) for word in command)} ended with {done.returncode}:\n"
                           f"{done.stdout}{done.stderr}".rstrip())
    return done.stdout


def version():
    """The project's, from the one place that has it."""
    return re.search(r"^project\(fourfold VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M).group(1)


def epoch():
    """Seconds since 1970 that files are dated with: SOURCE_DATE_EPOCH, else the commit's, so that the same source gives the
    same bytes."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    try:
        return int(run("git", "-C", ROOT, "log", "-1", "--format=%ct"))
    except PackageError:
        return 1_700_000_000  # a copy without git


def announce(package):
    print(f"{package}: {package.stat().st_size / 1e6:.1f} MB, sha256 {hashlib.sha256(package.read_bytes()).hexdigest()}")


def run_main(main):
    try:
        main()
    except PackageError as error:
        sys.exit(f"package: {error}")


def machine_of(program):
    """The machine that a program was compiled for, as `uname -m` says it."""
    head = program.read_bytes()[:20]
    number = int.from_bytes(head[18:20], "little")
    if head[:6] != b"\x7fELF\x02\x01" or number not in MACHINES:
        raise PackageError(f"{program} is no program for {' or '.join(MACHINES.values())}")
    return MACHINES[number]


def starter(program):
    """What a program of another machine is started by."""
    machine = machine_of(program)
    if machine == platform.machine():
        return []
    emulator = shutil.which(f"qemu-{machine}")
    if not emulator:
        raise PackageError(f"{program} is for {machine}, this machine is {platform.machine()}, and qemu-{machine} is not "
                           "installed (Debian: apt-get install qemu-user)")
    return [emulator, "-cpu", "max"]


def stage(build, prefix):
    """Installs a build below prefix, stripped, with the manual and the completions that the program writes itself."""
    shutil.rmtree(prefix, ignore_errors=True)
    run("cmake", "--install", build, "--prefix", prefix, "--strip")
    program = prefix / "bin/fourfold"
    if not program.exists():
        raise PackageError(f"{build} has no program: ninja -C {build}")
    start = starter(program)
    for shell, place in COMPLETIONS.items():
        (prefix / place).parent.mkdir(parents=True, exist_ok=True)
        (prefix / place).write_text(run(*start, program, "completion", shell))
    (prefix / "share/man/man1").mkdir(parents=True)
    (prefix / "share/man/man1/fourfold.1").write_text(run(*start, program, "man"))
    return prefix
