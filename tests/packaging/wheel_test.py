"""A wheel of this build, installed into a bare Python: wheel_test.py BUILD. Without auditwheel, which only a portable build
would satisfy (./dev test --long package-wheel). Ends with 77 (skipped) where Python has no venv."""
import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import venv
import zipfile

BUILD = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging"))
import common  # noqa: E402
import wheel as wheel_of  # noqa: E402

TAG = "py3-none-any"  # this machine's pip takes it; what it needs of the machine is here


def check_record(path):
    """Every file is listed with its digest and its size, and nothing is dated or named by this machine."""
    with zipfile.ZipFile(path) as archive:
        info = f"fourfold-{common.version()}.dist-info"
        listed = [line.split(",") for line in archive.read(f"{info}/RECORD").decode().splitlines()]
        assert sorted(name for name, _, _ in listed) == sorted(archive.namelist())
        for name, digest, size in listed:
            if name.endswith("/RECORD"):
                continue
            data = archive.read(name)
            ours = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={ours}", len(data)), name
            for place in (str(BUILD), str(ROOT)):
                assert place.encode() not in data, f"{name} knows {place}"
            # nvcc's name for what is in a namespace without one has a hash of the folder.
            hashed = re.search(rb"\w+_GLOBAL__N__[0-9a-f]{8}_\d+_\w+", data)
            assert not hashed, f"{name} has {hashed.group().decode()}: give that kernel's namespace a name"
        for name in ("licenses/LICENSE", "licenses/licenses/BSL-1.0.txt", "licenses/licenses/ncurses.txt",
                     "sboms/fourfold.spdx.json"):
            assert f"{info}/{name}" in archive.namelist(), name
        page = archive.read(f"{info}/METADATA").decode()
        assert "docs/install.md" in page and "](docs/" not in page and "](models/" not in page
        assert wheel_of.without_links("[a](docs/b.md#c) [d](https://e.f/g)") == "a [d](https://e.f/g)"
        assert len({entry.date_time for entry in archive.infolist()}) == 1
        program = archive.getinfo(f"fourfold-{common.version()}.data/scripts/fourfold")
        assert program.external_attr >> 16 == 0o100755


def installed(path, place):
    """Into a bare Python, then an answer: seconds of both."""
    try:
        venv.create(place, with_pip=True)
    except subprocess.CalledProcessError as error:
        print(f"skipped: python3 -m venv: {error}")
        sys.exit(77)
    start = time.monotonic()
    subprocess.run([place / "bin/pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", path], check=True)
    answer = subprocess.run([place / "bin/fourfold", "run", "-p", "hello", "--seed", "1"], check=True, capture_output=True,
                            text=True).stdout
    assert "Storyteller" in answer, answer
    return time.monotonic() - start


USES = """
import fourfold, fourfold_kernels, sys
assert fourfold.__file__.startswith(sys.prefix), fourfold.__file__
assert fourfold_kernels.version() == 100
assert "demonstration model" in fourfold.LLM().chat("What are you?", seed=1).text
with fourfold.serve(port=0, grace=0) as server:
    assert server._process.args[0].startswith(sys.prefix), server._process.args
    print(server.url)
"""


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        prefix = common.stage(BUILD, folder / "prefix")
        first = wheel_of.write(prefix, folder, TAG)
        digest = hashlib.sha256(first.read_bytes()).hexdigest()
        check_record(first)
        prefix = common.stage(BUILD, folder / "elsewhere/prefix")
        time.sleep(2)  # a zip file's clock
        again = wheel_of.write(prefix, folder, TAG)
        assert hashlib.sha256(again.read_bytes()).hexdigest() == digest, "two wheels of one build differ"
        seconds = installed(first, folder / "python")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FOURFOLD_")}
        subprocess.run([folder / "python/bin/python", "-c", USES], check=True, cwd=folder, env=environment)
    print(f"wheel: {seconds:.1f} s until it was installed and had answered")


if __name__ == "__main__":
    main()
