"""A Debian package of a build: deb.py BUILD OUTPUT

Program, libraries, headers, the Python module, the manual, completions, and a systemd unit of its own user with
/etc/fourfold/serve.toml. What it depends on is what dpkg-shlibdeps finds; the same build gives the same bytes.
"""
import argparse
import gzip
import hashlib
import os
import pathlib
import shutil
import tempfile

import common

CONTROL = """Package: fourfold
Version: {version}
Architecture: {architecture}
Maintainer: The Fourfold contributors <fourfold@localhost>
Installed-Size: {kilobytes}
Depends: {depends}, adduser
Recommends: ca-certificates
Suggests: python3
Section: science
Priority: optional
Description: {summary}
 One program: runs, serves and measures Qwen3.5 and its family in NVFP4 on any
 CPU and on NVIDIA GPUs of compute capability 9.0, 12.0 and 12.1, with an
 OpenAI-compatible server and a chat page. The engine is a C and C++ library,
 too, and a Python module.
"""


def put(source, target, mode=0o644):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def fill(root):
    """Everything beside what CMake installs into usr."""
    packaging = common.ROOT / "packaging"
    put(packaging / "fourfold.service", root / "lib/systemd/system/fourfold.service")
    put(packaging / "serve.toml", root / "etc/fourfold/serve.toml")
    manual = root / "usr/share/man/man1/fourfold.1"
    (manual.parent / "fourfold.1.gz").write_bytes(gzip.compress(manual.read_bytes(), 9, mtime=0))
    manual.unlink()
    vendor = root / "usr/share/zsh/vendor-completions"
    vendor.mkdir(parents=True)
    (root / "usr/share/zsh/site-functions/_fourfold").rename(vendor / "_fourfold")
    (root / "usr/share/zsh/site-functions").rmdir()
    put(common.ROOT / "LICENSE", root / "usr/share/doc/fourfold/copyright")
    changes = (common.ROOT / "CHANGELOG.md").read_bytes()
    (root / "usr/share/doc/fourfold/changelog.gz").write_bytes(gzip.compress(changes, 9, mtime=0))
    modules = root / "usr/lib/python3/dist-packages"
    modules.mkdir(parents=True)
    for name in ("fourfold", "fourfold_kernels.py"):
        (modules / name).symlink_to(f"../../../share/fourfold/python/{name}")


def depends_of(root, folder):
    """What dpkg-shlibdeps makes of the programs and libraries. It wants a source package's folder."""
    (folder / "debian").mkdir()
    (folder / "debian/control").write_text("Source: fourfold\n\nPackage: fourfold\nArchitecture: any\n")
    binaries = [path for path in [*root.glob("usr/bin/*"), *root.glob("usr/lib/**/*.so.*")] if not path.is_symlink()]
    libraries = sorted({str(path.parent) for path in binaries if ".so" in path.name})
    said = common.run("dpkg-shlibdeps", "-O", "--ignore-missing-info", *(f"-l{path}" for path in libraries), *binaries,
                      cwd=folder)
    return said.split("shlibs:Depends=", 1)[1].strip()


def control(root, depends):
    (root / "DEBIAN").mkdir(mode=0o755)
    files = sorted(path for path in root.rglob("*") if path.is_file() and "DEBIAN" not in path.parts)
    sizes = sum(path.stat().st_size for path in files if not path.is_symlink())
    text = CONTROL.format(version=common.version(), architecture=common.run("dpkg", "--print-architecture").strip(),
                          kilobytes=sizes // 1024, depends=depends, summary=common.SUMMARY)
    (root / "DEBIAN/control").write_text(text)
    (root / "DEBIAN/conffiles").write_text("/etc/fourfold/serve.toml\n")
    sums = "".join(f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}\n" for path in files
                   if not path.is_symlink())
    (root / "DEBIAN/md5sums").write_text(sums)
    for script in sorted((common.ROOT / "packaging/debian").iterdir()):
        put(script, root / "DEBIAN" / script.name, 0o755)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    options = parser.parse_args()
    for tool in ("dpkg-deb", "dpkg-shlibdeps"):
        if not shutil.which(tool):
            raise common.PackageError(f"{tool} is missing (apt-get install dpkg-dev)")
    options.output.mkdir(parents=True, exist_ok=True)
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        root = folder / "root"
        root.mkdir()
        common.stage(options.build, root / "usr")
        fill(root)
        control(root, depends_of(root, folder))
        name = f"fourfold_{common.version()}_{common.run('dpkg', '--print-architecture').strip()}.deb"
        os.environ["SOURCE_DATE_EPOCH"] = str(common.epoch())
        common.run("dpkg-deb", "--build", "--root-owner-group", "-Zxz", root, options.output / name)
    common.announce(options.output / name)


if __name__ == "__main__":
    common.run_main(main)
