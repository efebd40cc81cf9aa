"""The SBOM of this build, read and judged by the SPDX project's own tools."""
import pathlib

from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from served import ROOT, check

OWN_SERVERS = True


def is_valid(program):
    """fourfold.spdx.json, by spdx-tools"""
    path = pathlib.Path(program).parent / "fourfold.spdx.json"
    check(path.exists(), f"the build wrote no {path}")
    document = parse_file(str(path))
    messages = [message.validation_message for message in validate_full_spdx_document(document)]
    check(not messages, messages)
    names = {package.name for package in document.packages}
    check({"fourfold", "Boost", "CLI11", "Unicode data"} <= names, names)
    version = next(package.version for package in document.packages if package.name == "fourfold")
    check(f"project(fourfold VERSION {version} " in (ROOT / "CMakeLists.txt").read_text(), version)


ROWS = [is_valid]
