"""Guided answers to pydantic's schemas, judged by jsonschema and by pydantic itself.

    check_with_pydantic.py TEST_PROGRAM    the types of pydantic_models.py, by the packages of requirements.txt
    check_with_pydantic.py --write         writes pydantic_schemas.json, the program's test data, anew

Packages come from PyPI into a virtual environment beside the program. Ends with 77 (skipped) where that fails.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import venv
from typing import Any

FOLDER = pathlib.Path(__file__).resolve().parent
SCHEMAS = FOLDER / "pydantic_schemas.json"


def in_environment(program):
    """Runs this file again with the packages it needs."""
    place = pathlib.Path(program).resolve().parent / "pydantic-venv"
    python = place / "bin" / "python"
    ready = place / "ready"
    wanted = (FOLDER / "requirements.txt").read_text()
    if not ready.exists() or ready.read_text() != wanted:
        try:
            venv.create(place, clear=True, with_pip=True)
        except subprocess.CalledProcessError as error:
            print(f"skipped: no virtual environment can be made here (Debian: python3-venv): {error}")
            return 77
        install = subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries",
                                  "1", "-r", FOLDER / "requirements.txt"], stdin=subprocess.DEVNULL)
        if install.returncode != 0:
            print("skipped: the packages of requirements.txt cannot be had from PyPI")
            return 77
        ready.write_text(wanted)
    return subprocess.run([python, __file__, program], env={**os.environ, "FOURFOLD_PYDANTIC": "1"}).returncode


def adapters():
    """By name: what takes an answer, and the schema it was asked for by; then what must be refused, and why."""
    import pydantic_models as models
    from pydantic import TypeAdapter
    served = {name: (TypeAdapter(type_), TypeAdapter(type_).json_schema()) for name, type_ in models.TYPES.items()}
    served |= {name: (TypeAdapter(Any), TypeAdapter(type_).json_schema()) for name, type_ in models.LOOSE.items()}
    served |= {name: (TypeAdapter(type_), schema) for name, (type_, schema) in models.EARLIER.items()}
    refused = {name: {"says": says, "schema": TypeAdapter(type_).json_schema()}
               for name, (type_, says) in models.REFUSED.items()}
    return served, refused


def schemas_json(served, refused):
    """One schema a line, in the order of the models."""
    def lines(items):
        return ",\n".join(f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in items)
    return ('{\n  "served": {\n' + lines((name, schema) for name, (_, schema) in served.items())
            + '\n  },\n  "refused": {\n' + lines(refused.items()) + "\n  }\n}\n")


def judge(records, served):
    import jsonschema
    from pydantic import ValidationError
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    wrong = 0
    for schema, answer, name in records:
        validator = jsonschema.Draft202012Validator(schema, format_checker=checker)
        faults = [error.message for error in validator.iter_errors(answer)]
        try:
            served[name][0].validate_json(json.dumps(answer))
        except ValidationError as error:
            faults.append(str(error))
        for fault in faults:
            print(f"{name}: {json.dumps(answer)}\n{fault}\n")
        wrong += bool(faults)
    return wrong


def main(program):
    served, refused = adapters()
    written = schemas_json(served, refused)
    if program == "--write":
        SCHEMAS.write_text(written)
        return 0
    if written != SCHEMAS.read_text():
        print(f"{SCHEMAS} is not what pydantic writes for pydantic_models.py; run {__file__} --write")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "answers.jsonl"
        run = subprocess.run([program, "--gtest_filter=Pydantic.*"], stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "FOURFOLD_CONSTRAIN_ANSWERS": str(path)})
        if run.returncode != 0:
            print(run.stdout)
            return 1
        records = [json.loads(record) for record in path.read_bytes().decode("utf-8").split("\x1e")[:-1]]
    wrong = judge(records, served)
    names = {name for _, _, name in records}
    print(f"{len(records)} answers of {len(names)} types: {wrong} faults")
    return 0 if wrong == 0 and names == set(served) else 1


if __name__ == "__main__":
    known = "FOURFOLD_PYDANTIC" in os.environ or sys.argv[1] == "--write"
    sys.exit(main(sys.argv[1]) if known else in_environment(sys.argv[1]))
