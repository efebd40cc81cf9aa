"""The hub's own Python package and `fourfold pull` on one cache, against a hub of the tests' own (tests/hub/fake_hub.py):
what either wrote the other reads, goes on with, and waits for.
"""
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from served import ROOT, check

sys.path.insert(0, str(ROOT / "tests/hub"))
from fake_hub import COMMIT, FakeHub, etag_of, random_bytes  # noqa: E402

OWN_SERVERS = True
FILES = {"config.json": b'{"model_type": "x"}', "tokenizer.json": random_bytes(150_000),
         "model.safetensors": random_bytes(40 << 20), "README.md": b"# Read me"}
READ = ["config.json", "tokenizer.json", "model.safetensors"]


def with_hub(row):
    """The row gets the hub, and two functions: one runs fourfold, one runs Python with the package, on the same cache."""
    @functools.wraps(row)
    def run(program):
        with FakeHub(FILES) as hub, tempfile.TemporaryDirectory(prefix="fourfold-hub-") as folder:
            environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": folder, "HF_HUB_DISABLE_XET": "1",
                           "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}

            def called(command, more):
                done = subprocess.run(command, env={**environment, **more}, capture_output=True, text=True, timeout=120)
                check(done.returncode == 0, done.stdout + done.stderr)
                return done.stdout.strip()

            def fourfold(*words, **more):
                return called([program, *words], more)

            def python(code, **more):
                # Not `*`: that is all of the package, two seconds of it.
                names = "hf_hub_download, scan_cache_dir, snapshot_download"
                return called([sys.executable, "-W", "error", "-c", f"from huggingface_hub import {names}\n{code}"], more)

            hub.program, hub.environment, hub.cache = program, environment, pathlib.Path(folder) / "hub"
            return row(hub, fourfold, python)
    return run


@with_hub
def ours_is_read(hub, fourfold, python):
    """fourfold pull, then huggingface_hub offline"""
    snapshot = fourfold("pull", "org/name")
    found = python("print(snapshot_download('org/name', allow_patterns=['*.json', '*.safetensors']))", HF_HUB_OFFLINE="1")
    check(found == snapshot, (found, snapshot))
    for name in READ:
        path = python(f"print(hf_hub_download('org/name', {name!r}))", HF_HUB_OFFLINE="1")
        check(pathlib.Path(path).read_bytes() == FILES[name], path)
    scanned = json.loads(python(
        "import json\ninfo = scan_cache_dir()\nassert not info.warnings, info.warnings\nrepo, = info.repos\n"
        "revision, = repo.revisions\nprint(json.dumps([repo.repo_id, repo.size_on_disk, revision.commit_hash,"
        " sorted(revision.refs), sorted(file.file_name for file in revision.files)]))"))
    check(scanned == ["org/name", sum(len(FILES[name]) for name in READ), COMMIT, ["main"], sorted(READ)], scanned)
    # Online the package finds every etag as we named it, and fetches the one file that we do not.
    sent = hub.sent
    python("snapshot_download('org/name')")
    check(hub.sent - sent == len(FILES["README.md"]), hub.sent - sent)


@with_hub
def theirs_is_read(hub, fourfold, python):
    """huggingface_hub, then fourfold offline"""
    snapshot = python("print(snapshot_download('org/name'))")
    sent = hub.sent
    check(fourfold("pull", "org/name") == snapshot, "another snapshot")
    check(hub.sent == sent, "files were fetched again")
    model, = (one for one in json.loads(fourfold("list", "--json", HF_HUB_OFFLINE="1")) if not one["built_in"])
    found, = model["snapshots"]
    check((model["name"], found["commit"], found["revisions"], found["whole"], found["folder"]) ==
          ("org/name", COMMIT, ["main"], True, snapshot), found)
    fourfold("rm", "org/name")
    check(python("print(len(scan_cache_dir().repos))") == "0", "something is left")


@with_hub
def either_completes(hub, fourfold, python):
    """each completes what the other began"""
    python("hf_hub_download('org/name', 'tokenizer.json')")
    sent = hub.sent
    fourfold("pull", "org/name")
    check(hub.sent - sent == sum(len(FILES[name]) for name in READ) - len(FILES["tokenizer.json"]), hub.sent - sent)
    fourfold("rm", "org/name")
    hub.pause = 0.01
    process = subprocess.Popen([hub.program, "pull", "org/name"], env=hub.environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not any(path.stat().st_size for path in hub.cache.glob("models--org--name/blobs/*.incomplete")):
        time.sleep(0.02)
    process.kill()
    process.wait()
    hub.pause = 0
    path = python("print(hf_hub_download('org/name', 'model.safetensors'))")
    check(pathlib.Path(path).read_bytes() == FILES["model.safetensors"], "other bytes")


@with_hub
def locks_are_shared(hub, fourfold, python):
    """neither fetches what the other is fetching"""
    code = ("import sys\nfrom huggingface_hub.utils import WeakFileLock\nimport pathlib\n"
            "lock = pathlib.Path(sys.argv[1])\nlock.parent.mkdir(parents=True, exist_ok=True)\n"
            "with WeakFileLock(lock): print('held', flush=True); sys.stdin.read()")
    lock = hub.cache / ".locks/models--org--name" / f"{etag_of(FILES['model.safetensors'])}.lock"
    holder = subprocess.Popen([sys.executable, "-c", code, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    check(holder.stdout.readline() == "held\n", "the package took no lock")
    puller = subprocess.Popen([hub.program, "pull", "org/name"], env=hub.environment,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = ""
    while "another process is fetching it" not in said:
        line = puller.stderr.readline()
        check(line, f"it did not wait: {said}")
        said += line
    check(not hub.asked("cdn", "model.safetensors"), "it was fetched all the same")
    holder.communicate("")
    puller.communicate(timeout=60)
    check(puller.returncode == 0, puller.returncode)


ROWS = [ours_is_read, theirs_is_read, either_completes, locks_are_shared]
