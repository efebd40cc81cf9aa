"""The SBOM of a build: sbom.py ROOT PARTS OUT [COMMIT]

Writes SPDX 2.3 JSON: the program and what is in it, with versions and licences. PARTS is what the build found
(cmake/build_facts.cmake writes "name version" lines); licenses/parts.json says on what terms each part is. The same build
gives the same bytes: the time is that of SOURCE_DATE_EPOCH, else of the commit, else 1980.
"""
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

FIRST_TIME = 315532800  # 1980, where archives begin


def committed(root):
    """The commit's time, and its name; where there is no git, neither."""
    try:
        done = subprocess.run(["git", "-C", root, "log", "-1", "--format=%ct %H"], capture_output=True, text=True)
    except FileNotFoundError:
        return [str(FIRST_TIME), ""]
    return done.stdout.split() if done.returncode == 0 and done.stdout else [str(FIRST_TIME), ""]


def spdx_id(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]+", "-", name.replace("+", "p"))


def package(name, version, license_id, home, comment):
    entry = {"SPDXID": spdx_id(name), "name": name, "downloadLocation": home or "NOASSERTION", "filesAnalyzed": False,
             "licenseConcluded": license_id, "licenseDeclared": license_id, "copyrightText": "NOASSERTION",
             "comment": comment}
    if version:
        entry["versionInfo"] = version
    return entry


def found_parts(path):
    """{name: version} of the lines "name version"; the version may be missing."""
    lines = [line for line in path.read_text().splitlines() if line]
    return {line.rsplit(" ", 1)[0] if " " in line else line: line.rsplit(" ", 1)[1] if " " in line else "" for line in lines}


def text_of(root, part):
    return (root / "licenses" / part["text"]).read_text() if part["text"] else f"See {part['home']}"


def document(root, found, when, commit):
    known = json.loads((root / "licenses/parts.json").read_text())
    unknown = set(found) - {part["name"] for part in known} - {"fourfold"}
    if unknown:
        raise SystemExit(f"sbom: licenses/parts.json does not say on what terms these are: {', '.join(sorted(unknown))}")
    inside = [part for part in known if part["name"] in found or part.get("always")]
    packages = [package("fourfold", found["fourfold"], "Apache-2.0", "", f"commit {commit or 'unknown'}")]
    packages += [package(part["name"], found.get(part["name"], part.get("version", "")), part["license"], part["home"],
                         part["how"]) for part in inside]
    name = f"fourfold-{found['fourfold']}"
    content = json.dumps([packages, when], sort_keys=True).encode()
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-fourfold"}]
    relations += [{"spdxElementId": "SPDXRef-fourfold", "relationshipType": "CONTAINS", "relatedSpdxElement": spdx_id(part["name"])}
                  for part in inside]
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
            "documentNamespace": f"https://spdx.org/spdxdocs/{name}-{hashlib.sha256(content).hexdigest()[:32]}",
            "creationInfo": {"created": datetime.datetime.fromtimestamp(when, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                             "creators": ["Tool: fourfold-sbom"]},
            "packages": packages, "relationships": relations,
            "hasExtractedLicensingInfos": [{"licenseId": part["license"], "extractedText": text_of(root, part)}
                                           for part in inside if part["license"].startswith("LicenseRef-")]}


def main():
    root, parts, out = (pathlib.Path(word) for word in sys.argv[1:4])
    time, commit = committed(root)
    when = int(os.environ.get("SOURCE_DATE_EPOCH") or time)
    text = json.dumps(document(root, found_parts(parts), when, os.environ.get("FOURFOLD_COMMIT") or commit), indent=1) + "\n"
    if not out.exists() or out.read_text() != text:
        out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
