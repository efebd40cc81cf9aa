"""A wheel of a build: wheel.py BUILD OUTPUT [--auditwheel PROGRAM]

The program (in .data/scripts, so that `fourfold` on the PATH is the program itself and no Python starts), libfourfold_engine
and libfourfold_kernels, the module `fourfold`, Storyteller, completions and the manual. BUILD was configured with
-DFOURFOLD_PORTABLE=ON. The platform's tag is the one auditwheel confirms. The same build gives the same bytes.
"""
import argparse
import base64
import hashlib
import pathlib
import re
import tempfile
import time
import zipfile

import common

LARGEST = 150_000_000
METADATA = """Metadata-Version: 2.4
Name: fourfold
Version: {version}
Summary: {summary}
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.9
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Programming Language :: C++
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

{readme}"""


def contents(prefix):
    """(path in the wheel, file) of everything but the list of it."""
    name = f"fourfold-{common.version()}"
    for path in sorted((common.ROOT / "python/fourfold").iterdir()):
        if path.is_file():
            yield f"fourfold/{path.name}", path
    yield "fourfold_kernels.py", common.ROOT / "python/fourfold_kernels.py"
    for library in ("libfourfold_engine.so.0", "libfourfold_kernels.so.0"):
        found = sorted(prefix.glob(f"lib*/{library}")) + sorted(prefix.glob(f"lib*/*/{library}"))
        if not found:
            raise common.PackageError(f"{library} was not installed: the build is without the model floor (Boost)")
        yield f"fourfold/lib/{library}", found[0].resolve()
    # Where the library looks for it; the program's is in share/.
    for path in sorted((prefix / "share/fourfold/tuned").rglob("*.json")):
        yield f"fourfold/tuned/{path.name}", path
    yield f"{name}.data/scripts/fourfold", prefix / "bin/fourfold"
    shared = ["share/fourfold/models", "share/fourfold/tuned", "share/man", *common.COMPLETIONS.values()]
    for place in shared:
        files = sorted((prefix / place).rglob("*")) if (prefix / place).is_dir() else [prefix / place]
        for path in files:
            if path.is_file():
                yield f"{name}.data/data/{path.relative_to(prefix)}", path
    yield f"{name}.dist-info/licenses/LICENSE", common.ROOT / "LICENSE"
    # The licences of what is inside, and the list of it, where PEP 639 and 770 have them.
    documents = prefix / "share/doc/fourfold"
    for path in sorted((documents / "licenses").rglob("*")):
        yield f"{name}.dist-info/licenses/{path.relative_to(documents)}", path
    if (documents / "fourfold.spdx.json").exists():
        yield f"{name}.dist-info/sboms/fourfold.spdx.json", documents / "fourfold.spdx.json"


def without_links(text):
    """Links into this repository lead nowhere from a package's page: their words stay."""
    return re.sub(r"!?\[([^\]]*)\]\((?!https?://)[^)]*\)", r"\1", text)


def about(tag):
    """The texts of dist-info."""
    readme = without_links((common.ROOT / "README.md").read_text())
    yield "METADATA", METADATA.format(version=common.version(), summary=common.SUMMARY, readme=readme)
    yield "WHEEL", f"Wheel-Version: 1.0\nGenerator: fourfold packaging/wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n"


def write(prefix, folder, tag):
    """The wheel with this tag: sorted, dated by the commit, modes set by hand."""
    info = f"fourfold-{common.version()}.dist-info"
    date = time.gmtime(max(common.epoch(), 315532800))[:6]  # a zip file's first day is in 1980
    target = folder / f"fourfold-{common.version()}-{tag}.whl"
    files = [(name, path.read_bytes()) for name, path in contents(prefix)]
    files += [(f"{info}/{name}", text.encode()) for name, text in about(tag)]
    record = "".join(f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},"
                     f"{len(data)}\n" for name, data in files)
    files.append((f"{info}/RECORD", (record + f"{info}/RECORD,,\n").encode()))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name, data in files:
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            runs = name.endswith("/scripts/fourfold") or ".so." in name
            entry.external_attr = (0o100755 if runs else 0o100644) << 16
            wheel.writestr(entry, data)
    return target


def confirmed_tag(wheel, auditwheel):
    """The oldest tag whose rules the wheel keeps: what it needs of the system, and of which versions."""
    said = common.run(auditwheel, "show", wheel)
    match = re.search(r"the following platform\s+tag:\s+\"(\S+?)\"", " ".join(said.split()))
    if not match or not match.group(1).startswith("manylinux"):
        raise common.PackageError(f"auditwheel confirms no manylinux tag (was BUILD configured with FOURFOLD_PORTABLE?):\n{said}")
    return f"py3-none-{match.group(1)}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--auditwheel", default="auditwheel")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        prefix = common.stage(options.build, folder / "prefix")
        plain = write(prefix, folder, f"py3-none-linux_{common.machine_of(prefix / 'bin/fourfold')}")
        wheel = write(prefix, options.output, confirmed_tag(plain, options.auditwheel))
    size = wheel.stat().st_size
    if size > LARGEST:
        raise common.PackageError(f"{wheel} has {size:,} bytes; at most {LARGEST:,} are wanted")
    common.announce(wheel)


if __name__ == "__main__":
    common.run_main(main)
