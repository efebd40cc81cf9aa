"""./dev package wheel --for another machine, where it must refuse: unknown words, missing compilers and libraries, a runtime of another
release; and how a program of another machine is told and started. Building one takes long: ./dev test --long package-wheel-x86-64."""
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging"))
import common  # noqa: E402

OTHER = {"x86_64": "aarch64", "aarch64": "x86_64"}[platform.machine()]
LIBRARIES = ("libc.so.6", "libcrypto.a", "libedit.a", "libtinfo.a", "libbsd.a", "libmd.a")


def run(*command, **environment):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env={**os.environ, **environment})
    return done.returncode, done.stdout + done.stderr


class InFolder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def program(self, name, body="true"):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)
        return path


class Words(unittest.TestCase):
    def test_unknown_architectures_and_words(self):
        for words, says in ((("wheel", "--for", "riscv64"), "knows x86-64 and aarch64, not 'riscv64'"),
                            (("wheel", "--for", "x86_64"), "knows x86-64 and aarch64, not 'x86_64'"),
                            (("wheel", "--for"), "wheel --for x86-64 or aarch64; not 'wheel --for'"),
                            (("wheel", "--for", "x86-64", "aarch64"), "takes one architecture, not 'x86-64 aarch64'"),
                            (("wheel", "x86-64"), "not 'wheel x86-64'"),
                            (("deb", "--for", "aarch64"), "not 'deb --for aarch64'")):
            status, output = run(ROOT / "dev", "package", *words)
            self.assertEqual(status, 64, output)
            self.assertIn(says, output)


class SetUp(InFolder):
    """tools/setup.sh for-x86-64 on a machine made of a few programs and libraries."""

    def set_up(self, known, programs=(), libraries=()):
        for name in ("grep", "sed", "sort", "head", "mktemp", "rm", "cat", "tail"):
            (self.folder / name).symlink_to(next(p for p in ("/usr/bin/" + name, "/bin/" + name) if os.path.exists(p)))
        self.program("cmake", "echo cmake version 3.25.1")
        self.program("c++", "echo 12")
        self.program("dpkg", f"echo {known}")
        self.program("apt-get", f'echo "$@" >>{self.folder}/asked; exit 1')
        for name in programs:
            self.program(name)
        for name in libraries:
            path = self.folder / "usr/lib/x86_64-linux-gnu" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        return run("/bin/bash", ROOT / "tools/setup.sh", "for-x86-64", PATH=str(self.folder), CXX="",
                   FOURFOLD_LIBRARY_FOLDER=str(self.folder / "usr"))

    def test_an_architecture_that_apt_does_not_know_is_not_added_for_anybody(self):
        status, output = self.set_up("armhf")
        self.assertEqual(status, 3, output)
        self.assertIn("dpkg --add-architecture amd64 && apt-get update\n", output)
        self.assertIn("apt-get install -y --no-install-recommends --no-remove g++-x86-64-linux-gnu qemu-user libc6:amd64 "
                      "libssl-dev:amd64 libedit-dev:amd64 libncurses-dev:amd64 libbsd-dev:amd64 libmd-dev:amd64\n", output)
        self.assertFalse((self.folder / "asked").exists(), output)

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_what_is_missing_is_asked_of_apt(self):
        status, output = self.set_up("amd64", ("qemu-x86_64",), [name for name in LIBRARIES if name != "libedit.a"])
        self.assertEqual(status, 3, output)  # this apt-get fails, and that is passed on
        self.assertIn("setup: installing g++-x86-64-linux-gnu libedit-dev:amd64 (apt-get)", output)

    def test_nothing_is_missing(self):
        self.assertEqual(self.set_up("", ("qemu-x86_64", "x86_64-linux-gnu-g++"), LIBRARIES), (0, ""))


class Cudart(InFolder):
    """The CUDA runtime of the other machine."""

    def find(self, release, **environment):
        self.program("nvcc", f"echo 'Cuda compilation tools, release {release}, V{release}.1'")
        script = 'fail() { echo "$*" >&2; exit "$1"; }; source tools/package.sh; find_cudart x86_64 ' + str(self.folder)
        return run("/bin/bash", "-euo", "pipefail", "-c", f"cd {ROOT}; {script}",
                   PATH=f"{self.folder}:{os.environ['PATH']}", **{"FOURFOLD_CMAKE": "", **environment})

    def test_another_release_than_nvccs_is_refused_with_both(self):
        status, output = self.find("12.9")
        self.assertEqual(status, 3, output)
        self.assertIn("is release 12.9, and packaging/cudart.txt names the runtime of 13.0", output)
        self.assertIn("-DFOURFOLD_CUDART=DIR", output)

    def test_not_fetched_where_it_is_there_or_not_wanted(self):
        for option in ("-DFOURFOLD_CUDA=off", "-DFOURFOLD_CUDART=/somewhere"):
            self.assertEqual(self.find("12.9", FOURFOLD_CMAKE=option), (0, ""))
        (self.folder / "cudart").mkdir()
        (self.folder / "cudart/libcudart_static.a").touch()
        status, output = self.find("13.0")
        self.assertEqual((status, output.strip()), (0, str((self.folder / "cudart").resolve())))

    def test_a_toolkit_of_links(self):
        """cmake/cross_cuda.cmake, with a toolkit of two files."""
        self.program("toolkit/bin/nvcc")
        for path in ("toolkit/nvvm/bin/cicc", "toolkit/include/cuda_runtime.h"):
            (self.folder / path).parent.mkdir(parents=True)
            (self.folder / path).touch()
        script = self.folder / "script.cmake"
        script.write_text(f"include({ROOT}/cmake/cross_cuda.cmake)\n"
                          f"fourfold_cross_cuda(nvcc {self.folder}/toolkit/bin/nvcc {self.folder}/build/cuda)\n"
                          'message(STATUS "nvcc ${nvcc}")\n')
        asked = ("cmake", f"-DFOURFOLD_CUDART={self.folder}/cudart", "-DCMAKE_SYSTEM_PROCESSOR=x86_64", "-P",
                 script)
        (self.folder / "cudart").mkdir()
        (self.folder / "cudart/libcudart_static.a").touch()
        status, output = run(*asked)
        self.assertNotEqual(status, 0)
        self.assertIn("runtime for x86_64 is needed", " ".join(output.split()))
        self.assertIn("libcudadevrt.a", output)
        (self.folder / "cudart/libcudadevrt.a").touch()
        for _ in range(2):  # CMake runs again and again
            status, output = run(*asked)
            self.assertEqual(status, 0, output)
            self.assertIn(f"nvcc {self.folder}/build/cuda/bin/nvcc", output)
        place = self.folder / "build/cuda"
        for path in ("bin/nvcc", "nvvm/bin/cicc", "targets/x86_64-linux/include/cuda_runtime.h",
                     "targets/x86_64-linux/lib/libcudart_static.a"):
            self.assertTrue((place / path).exists(), path)
        self.assertFalse(os.path.islink(place / "bin"), "nvcc looks for the toolkit beside its own folder")


class Programs(InFolder):
    def elf(self, number):
        path = self.folder / "program"
        path.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00" + number.to_bytes(2, "little") + bytes(44))
        return path

    def test_their_machine(self):
        self.assertEqual(common.machine_of(pathlib.Path(sys.executable).resolve()), platform.machine())
        for number, machine in common.MACHINES.items():
            self.assertEqual(common.machine_of(self.elf(number)), machine)
        for path in (self.elf(243), self.program("script")):
            with self.assertRaisesRegex(common.PackageError, "is no program for x86_64 or aarch64"):
                common.machine_of(path)

    def test_their_emulator(self):
        numbers = {machine: number for number, machine in common.MACHINES.items()}
        self.assertEqual(common.starter(self.elf(numbers[platform.machine()])), [])
        before = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", before)
        os.environ["PATH"] = str(self.folder)
        with self.assertRaisesRegex(common.PackageError, f"is for {OTHER}, .* qemu-{OTHER} is not installed .*qemu-user"):
            common.starter(self.elf(numbers[OTHER]))
        emulator = self.program(f"qemu-{OTHER}")
        self.assertEqual(common.starter(self.elf(numbers[OTHER])), [str(emulator), "-cpu", "max"])


if __name__ == "__main__":
    unittest.main()
