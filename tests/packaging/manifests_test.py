"""packaging/kubernetes.yaml by Kubernetes' own schema, compose.yaml and the unit by what they promise: manifests_test.py SOURCE
FOLDER PROGRAM. The schemas come from PyPI (kubernetes-validate) into FOLDER; ends with 77 (skipped) where it cannot be reached."""
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(SOURCE / "tests/clients"))
import run  # noqa: E402

INSIDE = """
import copy, pathlib, subprocess, sys
import kubernetes_validate, yaml

packaging, program = pathlib.Path(sys.argv[1]), sys.argv[2]

def known(words):
    "Every option of these words is one of the command's."
    command = [word for word in words if not word.startswith("-")][:1]
    listed = subprocess.run([program, *command, "--help"], capture_output=True, text=True, check=True).stdout
    for word in words:
        assert not word.startswith("--") or word in listed, (command, word)

def strict(document):
    kubernetes_validate.validate(document, "1.30", strict=True)

documents = list(yaml.safe_load_all((packaging / "kubernetes.yaml").read_text()))
assert [document["kind"] for document in documents] == ["PersistentVolumeClaim", "Deployment", "Service"]
for document in documents:
    strict(document)
wrong = copy.deepcopy(documents[1])
wrong["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
try:
    strict(wrong)
except kubernetes_validate.ValidationError:
    pass
else:
    raise AssertionError("a misspelt probe is valid")
container = documents[1]["spec"]["template"]["spec"]["containers"][0]
assert container["livenessProbe"]["httpGet"]["path"] == "/health"
assert container["readinessProbe"]["exec"]["command"][:3] == ["/usr/bin/fourfold", "health", "--ready"]
assert container["securityContext"]["readOnlyRootFilesystem"] and documents[1]["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"]
known(container["args"])
known(container["readinessProbe"]["exec"]["command"][1:])

service = yaml.safe_load((packaging / "compose.yaml").read_text())["services"]["fourfold"]
assert service["read_only"] and service["user"] == "65534:65534" and service["cap_drop"] == ["ALL"]
assert service["healthcheck"]["test"] == ["CMD", "/usr/bin/fourfold", "health"]
known(service["command"])

unit = (packaging / "fourfold.service").read_text()
known(next(line for line in unit.splitlines() if line.startswith("ExecStart=")).split()[1:])
"""


def main():
    python = run.environment_or_skip(pathlib.Path(sys.argv[2]), "manifests")
    done = subprocess.run([str(python), "-c", INSIDE, SOURCE / "packaging", sys.argv[3]], text=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
