"""A second opinion on guided answers: those of the random-schema test, judged by Python's jsonschema.

    check_with_jsonschema.py TEST_PROGRAM

Ends with 77 (skipped) where the package is not installed (Debian: python3-jsonschema).
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("skipped: the Python package jsonschema is not installed")
    sys.exit(77)


def main(program):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "answers.jsonl"
        run = subprocess.run([program, "--gtest_filter=RandomSchema.*"], stdout=subprocess.DEVNULL,
                             env={**os.environ, "FOURFOLD_CONSTRAIN_ANSWERS": str(path)})
        if run.returncode != 0:
            print(f"{program} failed with {run.returncode}")
            return 1
        records = path.read_bytes().decode("utf-8").split("\x1e")[:-1]
    schemas, wrong = set(), 0
    for record in records:
        schema, answer = json.loads(record)
        schemas.add(json.dumps(schema))
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
        for error in validator.iter_errors(answer):
            print(f"schema {json.dumps(schema)}\nanswer {json.dumps(answer)}\n{error.message}\n")
            wrong += 1
    print(f"{len(records)} answers of {len(schemas)} schemas: {wrong} faults")
    return 0 if wrong == 0 and len(schemas) >= 200 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
