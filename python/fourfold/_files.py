"""Where the program, the engine's library and the model that comes with them are.

A wheel has the library beside this file, and pip puts the program and the model where its list of installed files says;
an installed tree (`cmake --install`) and a source tree with a build are known by their folders.
"""

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
from typing import Iterator, List, Optional

HERE = pathlib.Path(__file__).resolve().parent


def _installed_by_pip(ending: str) -> Iterator[pathlib.Path]:
    """Files of the wheel whose path ends so; none where this package did not come from one."""
    try:
        distribution = importlib.metadata.distribution("fourfold")
    except importlib.metadata.PackageNotFoundError:
        return
    for file in distribution.files or []:
        if str(file).endswith(ending):
            path = pathlib.Path(str(distribution.locate_file(file))).resolve()
            # A wheel that is installed elsewhere on the path is not ours.
            if path.exists() and pathlib.Path(str(distribution.locate_file("fourfold"))).resolve() == HERE:
                yield path


def _prefixes() -> List[pathlib.Path]:
    """<prefix> of <prefix>/share/fourfold/python/fourfold; the root of a source tree of <root>/python/fourfold."""
    if HERE.parts[-4:-1] == ("share", "fourfold", "python"):
        return [HERE.parents[3]]
    return [HERE.parents[1]]


def library_candidates(name: str, variable: str) -> List[str]:
    """Where a library may be, the likeliest first; the last is where the loader looks."""
    named = os.environ.get(variable)
    if named:
        return [named]
    found = [HERE / "lib" / name]
    for prefix in _prefixes():
        found += sorted(prefix.glob("lib*/" + name)) + sorted(prefix.glob("lib*/*/" + name)) + [prefix / "build" / name]
    return [str(path) for path in found if path.exists()] + [name]


def program() -> str:
    """The program `fourfold`: FOURFOLD_PROGRAM, what came with this package, or what is on the PATH."""
    named = os.environ.get("FOURFOLD_PROGRAM")
    if named:
        return named
    for path in _installed_by_pip("bin/fourfold"):
        return str(path)
    for prefix in _prefixes():
        for folder in ("bin", "build"):
            if os.access(prefix / folder / "fourfold", os.X_OK):
                return str(prefix / folder / "fourfold")
    found: Optional[str] = shutil.which("fourfold")
    if found is None:
        raise FileNotFoundError("the program fourfold is neither beside this package nor on the PATH; "
                                "set FOURFOLD_PROGRAM to its path")
    return found


def model_folder(model: Optional[str]) -> str:
    """The folder of a model by what LLM calls it. What the hub has is fetched by the program, which shows how far it is."""
    if model is None or model == "storyteller":
        return built_in_model()
    if os.path.exists(model) or not re.fullmatch(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", model):
        return model  # the engine says what is wrong with it
    fetched = subprocess.run([program(), "pull", "--cached", model], stdout=subprocess.PIPE, text=True)
    if fetched.returncode != 0:
        raise FileNotFoundError(f"{model} is neither a folder nor could it be fetched; the program has said why")
    return fetched.stdout.rstrip("\n")


def built_in_model() -> str:
    """The folder of Storyteller, the small model that comes with the program."""
    for path in _installed_by_pip("models/storyteller/config.json"):
        return str(path.parent)
    looked = [prefix / folder for prefix in _prefixes() for folder in ("share/fourfold/models", "models")]
    for folder in looked:
        if (folder / "storyteller" / "config.json").exists():
            return str(folder / "storyteller")
    raise FileNotFoundError("Storyteller, the model that comes with the program, is not in "
                            + " or ".join(str(folder) for folder in looked) + "; name a model's folder")
