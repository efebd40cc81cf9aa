"""tools/sbom.py: every part with its licence, the same bytes twice, and a part nobody has judged is refused; the licence page
has every part, and every text is there."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = "fourfold 1.2.3\nBoost 1.81\nCLI11 2.1.2\nOpenSSL 3.0.1\ntoml++ 3.3.0\nlibedit 3.1\nCUDA 13.0\nlibstdc++ 12.2\nncurses\nlibbsd\nlibmd\n"


class Sbom(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, parts, name="out.json", **environment):
        folder = pathlib.Path(self.folder.name)
        (folder / "parts.txt").write_text(parts)
        done = subprocess.run([sys.executable, ROOT / "tools/sbom.py", ROOT, folder / "parts.txt", folder / name],
                              env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000", **environment}, capture_output=True, text=True)
        return done, folder / name

    def test_parts_versions_licences(self):
        done, out = self.write(PARTS)
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(out.read_text())
        packages = {p["name"]: (p.get("versionInfo"), p["licenseDeclared"]) for p in document["packages"]}
        self.assertEqual(packages["fourfold"], ("1.2.3", "Apache-2.0"))
        self.assertEqual(packages["Boost"], ("1.81", "BSL-1.0"))
        self.assertEqual(packages["toml++"], ("3.3.0", "MIT"))
        self.assertEqual(packages["Unicode data"], ("16", "Unicode-3.0"))
        self.assertEqual(len(packages), 14)
        self.assertEqual(packages["libstdc++"], ("12.2", "GPL-3.0-or-later WITH GCC-exception-3.1"))
        self.assertEqual(packages["libbsd"], (None, "LicenseRef-libbsd"))
        self.assertEqual(document["creationInfo"]["created"], "2023-11-14T22:13:20Z")
        self.assertEqual({info["licenseId"] for info in document["hasExtractedLicensingInfos"]},
                         {"LicenseRef-NVIDIA-CUDA-EULA", "LicenseRef-GUST-Font-License", "LicenseRef-libbsd", "LicenseRef-libmd"})
        self.assertEqual(out.read_bytes(), self.write(PARTS, "again.json")[1].read_bytes())

    def test_without_git(self):
        done, out = self.write(PARTS, PATH=self.folder.name)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("fourfold", [p["name"] for p in json.loads(out.read_text())["packages"]])

    def test_what_is_not_inside_is_not_listed(self):
        document = json.loads(self.write("fourfold 1.2.3\nCLI11\n")[1].read_text())
        names = {p["name"]: p.get("versionInfo") for p in document["packages"]}
        self.assertNotIn("CUDA", names)
        self.assertIsNone(names["CLI11"])

    def test_a_part_without_terms_is_refused(self):
        done, out = self.write(PARTS + "zlib 1.3\n")
        self.assertIn("does not say on what terms these are: zlib", done.stderr)
        self.assertFalse(out.exists())

    def test_the_version_is_written_once(self):
        """In CMakeLists.txt. (The C headers' numbers are compared with it when the build is configured; a pyproject.toml must
        have one of its own, which is compared here.)"""
        version = re.search(r"^project\(fourfold VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)[1]
        found = [path for folder in ("src", "include", "cmake", "python", "tools") for path in (ROOT / folder).rglob("*")
                 if path.suffix in (".cpp", ".h", ".py", ".cmake", ".sh") and f'"{version}"' in path.read_text()]
        self.assertEqual(found, [])
        for project in (ROOT / "python").rglob("pyproject.toml"):
            self.assertIn(f'\nversion = "{version}"\n', project.read_text(), project)
        self.assertIn(f"\n## {version}", (ROOT / "docs/release-notes.md").read_text())

    def test_the_page_and_the_texts(self):
        page = (ROOT / "licenses/README.md").read_text()
        for part in json.loads((ROOT / "licenses/parts.json").read_text()):
            text = part["text"] or part["home"]
            self.assertIn(f"| {part['name']} | {part['license']} | {text} | {part['how']} |", page)
            if part["text"]:
                self.assertGreater(len((ROOT / "licenses" / part["text"]).read_text()), 500)


if __name__ == "__main__":
    unittest.main()
