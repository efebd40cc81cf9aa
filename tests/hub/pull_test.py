"""`fourfold pull`, list and rm, and fetching by run and serve, against a hub that fails in every way: pull_test.py FOURFOLD"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from fake_hub import COMMIT, FakeHub, FakeProxy, etag_of, random_bytes

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
STORY = ROOT / "models/storyteller"
MEGABYTE = 1 << 20
BIG = random_bytes(70 * MEGABYTE + 12345)
SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


def sharded():
    """A model as the hub has them, with more in it than we read."""
    index = {"metadata": {}, "weight_map": {"a": SHARDS[0], "b": SHARDS[1]}}
    return {"config.json": b'{"model_type": "qwen3_5_moe"}', "tokenizer.json": random_bytes(150_000),
            "tokenizer_config.json": b"{}", "generation_config.json": b"{ }", "chat_template.jinja": b"{{ x }}",
            "hf_quant_config.json": b"{  }", "model.safetensors.index.json": json.dumps(index).encode(),
            SHARDS[0]: random_bytes(300_000), SHARDS[1]: random_bytes(200_000),
            "README.md": b"# Read me", "pytorch_model.bin": b"x" * 1000, "consolidated.safetensors": b"y" * 1000,
            "original/model.safetensors": b"z" * 1000, ".gitattributes": b""}


READ = {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja",
        "hf_quant_config.json", "model.safetensors.index.json", *SHARDS}


def single(weights=b"w" * 200_000):
    return {"config.json": b"{}", "model.safetensors": weights}


class HubTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fourfold-hub-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.cache = self.folder / "cache"
        self.entry = self.cache / "models--org--name"

    def environment(self, url, **more):
        kept = {key: value for key, value in os.environ.items()
                if not key.startswith(("HF_", "HUGGING", "SSL_", "TRANSFORMERS", "XDG")) and "proxy" not in key.lower()}
        return {**kept, "HOME": str(self.folder), "HF_HUB_CACHE": str(self.cache), "HF_ENDPOINT": url, **more}

    def run_program(self, hub, *words, status=0, **more):
        done = subprocess.run([PROGRAM, *words], env=self.environment(getattr(hub, "url", hub), **more), text=True,
                              capture_output=True, timeout=120, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, status, done.stderr + done.stdout)
        self.assertNotRegex(done.stderr, r"(org/name: \S+: )\1")  # what it is about is said once
        return done

    def pull(self, hub, *words, status=0, **more):
        return self.run_program(hub, "pull", *(words or ["org/name"]), status=status, **more)

    def blobs(self):
        return {path.name: path.read_bytes() for path in (self.entry / "blobs").glob("*")}

    def assert_whole(self, files, names):
        """Exactly these files, laid out as the hub's own tools do it."""
        snapshot = self.entry / "snapshots" / COMMIT
        self.assertEqual({path.name for path in snapshot.iterdir()}, set(names))
        for name in names:
            self.assertEqual(os.readlink(snapshot / name), f"../../blobs/{etag_of(files[name])}")
            self.assertEqual((snapshot / name).read_bytes(), files[name])
        self.assertEqual(set(self.blobs()), {etag_of(files[name]) for name in names})
        self.assertEqual((self.entry / "refs/main").read_text(), COMMIT)

    def assert_nothing(self):
        """No blob, no link, no name: at most empty folders and what may be resumed."""
        self.assertEqual([name for name in self.blobs() if not name.endswith(".incomplete")], [])
        self.assertEqual(list(self.entry.glob("snapshots/*/*")), [])
        self.assertFalse((self.entry / "refs/main").exists())


class Pull(HubTest):
    def test_only_what_is_read_in_the_standard_layout(self):
        files = sharded()
        with FakeHub(files) as hub:
            done = self.pull(hub)
            self.assertEqual(done.stdout.strip(), str(self.entry / "snapshots" / COMMIT))
            self.assertIn("all hashes are right", done.stderr)
            self.assert_whole(files, READ)
            asked = len(hub.requests)
            again = self.pull(hub)
            self.assertIn("is here: 9 files", again.stderr)
            self.assertEqual([r["path"] for r in hub.requests[asked:]], ["/api/models/org/name/revision/main?blobs=true"])

    def test_a_part_that_is_missing_is_fetched_alone(self):
        files = sharded()
        with FakeHub(files) as hub:
            self.pull(hub)
            (self.entry / "blobs" / etag_of(files[SHARDS[1]])).unlink()
            asked = len(hub.requests)
            self.pull(hub)
            self.assert_whole(files, READ)
            self.assertTrue(all(SHARDS[1] in r["path"] or "/api/" in r["path"] for r in hub.requests[asked:]))

    def test_several_ranges_at_once_and_links_kept(self):
        with FakeHub(single(BIG)) as hub:
            hub.pause = 0.002
            self.pull(hub)
            self.assert_whole(hub.files, hub.files)
            ranges = [r["range"] for r in hub.asked("cdn")]
            self.assertEqual(len(set(ranges)), 5)
            self.assertGreaterEqual(hub.most_at_once, 2)  # five on a quiet machine

    def test_the_token_stays_with_the_hub(self):
        for token in ({"HF_TOKEN": "hf_secret"}, {"HUGGING_FACE_HUB_TOKEN": "hf_secret"}, {"HF_HOME": str(self.folder / "home")}):
            (self.folder / "home").mkdir(exist_ok=True)
            (self.folder / "home/token").write_text("hf_secret\n")
            shutil.rmtree(self.cache, ignore_errors=True)
            with FakeHub(single()) as hub:
                self.pull(hub, **token)
                self.assertTrue(hub.asked("cdn"))
                self.assertEqual({r["token"] for r in hub.asked("hub")}, {"Bearer hf_secret"})
                self.assertEqual({r["token"] for r in hub.asked("cdn")}, {None})

    def test_cut_connections_are_gone_on_with(self):
        with FakeHub(single(BIG)) as hub:
            hub.cuts, hub.cut_after = 8, 3 * MEGABYTE
            self.pull(hub)
            self.assert_whole(hub.files, hub.files)
            self.assertEqual(hub.cuts, 0)
            self.assertLess(hub.sent, 1.1 * len(BIG))  # nothing that had arrived was asked for again

    def test_a_server_that_always_hangs_up_is_given_up(self):
        with FakeHub(single()) as hub:
            hub.cuts, hub.cut_after = 1000, 0
            begun = time.time()
            said = self.pull(hub, status=2).stderr
            self.assertIn("model.safetensors: the server closed the connection", said)
            self.assertIn("Later the same command goes on", said)
            self.assertLess(time.time() - begun, 30)
        said = self.pull("http://127.0.0.1:9", status=2).stderr
        self.assertIn("cannot be reached", said)
        for name in ("HF_ENDPOINT", "HTTPS_PROXY", "HF_HUB_OFFLINE"):
            self.assertIn(name, said)

    def test_links_that_expire_are_asked_for_again(self):
        with FakeHub(single(BIG)) as hub:
            hub.links_expire, hub.pause = True, 0.003
            process = subprocess.Popen([PROGRAM, "pull", "org/name"], env=self.environment(hub.url), stderr=subprocess.PIPE)
            while not hub.asked("cdn"):
                time.sleep(0.01)
            hub.link = 2
            hub.cuts, hub.cut_after = 5, MEGABYTE
            _, said = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, said)
            self.assert_whole(hub.files, hub.files)


class Lies(HubTest):
    def test_about_sizes(self):
        with FakeHub(single()) as hub:
            hub.size_lie = 7
            message = self.pull(hub, status=2).stderr
            self.assertIn("model.safetensors: the server has 200007 bytes of it, and the hub's listing says 200000", message)
            self.assert_nothing()
        with FakeHub(single()) as hub:  # fewer bytes than were listed
            hub.served["model.safetensors"] = b"w" * 150_000
            self.assertIn("the server has 150000 bytes", self.pull(hub, status=2).stderr)
            self.assert_nothing()

    def test_about_ranges(self):
        for lie in ((0, 0), (1, 0), (0, 1)):
            shutil.rmtree(self.cache, ignore_errors=True)
            with FakeHub(single()) as hub:
                hub.range_lies.append(lie)
                self.pull(hub)
                self.assertEqual(len(hub.asked("cdn")), 1 if lie == (0, 0) else 2, "one that is about other bytes is asked again")

    def test_about_content(self):
        for name in ("model.safetensors", "config.json"):
            with FakeHub(single()) as hub:
                hub.served[name] = b"v" * len(hub.files[name])
                self.assertIn(f"{name}: its bytes have the hash", self.pull(hub, status=2).stderr)
                self.assertNotIn(etag_of(hub.files[name]), self.blobs())
                self.assertEqual(list(self.entry.glob("blobs/*.incomplete")), [])
                self.assertFalse((self.entry / "snapshots" / COMMIT / name).exists())

    def test_without_ranges(self):
        with FakeHub(single()) as hub:
            hub.serves_ranges = False
            self.assertIn("sends all of the file where a part was asked for", self.pull(hub, status=2).stderr)

    def test_names_that_lead_elsewhere(self):
        files = sharded()
        with FakeHub(files) as hub:
            for name in ("../../evil.safetensors", "/tmp/evil.safetensors", "..", "a/../../evil.json", ".hidden.safetensors"):
                hub.listing_changes.append(lambda siblings, name=name: siblings.append(
                    {"rfilename": name, "size": 4, "blobId": etag_of(b"evil")}))
            self.pull(hub)
            self.assert_whole(files, READ)
        files["model.safetensors.index.json"] = json.dumps({"weight_map": {"a": "../../../evil.safetensors"}}).encode()
        shutil.rmtree(self.cache)
        with FakeHub(files) as hub:
            self.assertIn("a shard is a *.safetensors file in the same folder", self.pull(hub, status=2).stderr)
            self.assertEqual(list(self.blobs()), [etag_of(files["model.safetensors.index.json"])])
            self.assertFalse((self.entry / "refs/main").exists())

    def test_hashes_that_are_none(self):
        with FakeHub(single()) as hub:
            hub.listing_changes.append(lambda siblings: siblings[0].update(blobId="../../../evil"))
            self.assertIn("no size and hash of config.json", self.pull(hub, status=2).stderr)
        with FakeHub(single()) as hub:
            hub.listing_changes.append(lambda siblings: siblings.append(dict(siblings[0])))
            self.assertIn("lists config.json twice", self.pull(hub, status=2).stderr)

    def test_more_than_the_disk_has(self):
        with FakeHub(single()) as hub:
            hub.listing_changes.append(lambda siblings: siblings[1]["lfs"].update(size=10**17))
            message = self.pull(hub, status=2).stderr
            self.assertRegex(message, r"100000000\.\d GB are still to be fetched, and [\d.]+ GB are free in")
            self.assertEqual(hub.asked(part="resolve"), [])

    def test_redirects(self):
        with FakeHub(single()) as hub:
            hub.redirect_to = hub.url + "/org/name/resolve/x/model.safetensors"
            self.assertIn("more than 5 redirects", self.pull(hub, status=2).stderr)


class Refusals(HubTest):
    def test_names_that_are_none(self):
        with FakeHub(single()) as hub:
            for name in ("../x", "org/..", "../../etc", "org/../x", "org/name@../../x", "org", "a/b/c", "/etc/passwd",
                         "org/na--me", "https://huggingface.co/org/name"):
                self.assertIn("is no hub name", self.pull(hub, name, status=2).stderr)
            self.assertIn("is no hub name", self.pull(hub, "org/name", "--revision", "../x", status=2).stderr)
            for name in ("../x", "./org/name", "a/b/c", "org/../x"):
                done = self.run_program(hub, "run", name, "-p", "hi", status=2)
                self.assertIn("A MODEL is a folder that exists, or else a hub name: ORG/NAME", done.stderr)
            self.assertEqual(hub.requests, [])
            self.assertFalse(self.cache.exists())

    def test_what_the_hub_says(self):
        for status, code, words, token in (
                (401, "RepoNotFound", "has no such model, or none to be read without a token (401)", {}),
                (401, "", "none to be read with the token of HF_TOKEN (401)", {"HF_TOKEN": "hf_hidden"}),
                (403, "GatedRepo", "gives no access without a token (403): said the hub", {}),
                (404, "RepoNotFound", "has no such model", {}),
                (404, "RevisionNotFound", "there is no such revision", {}),
                (418, "", "answered 418", {})):
            with FakeHub(single()) as hub:
                hub.status, hub.error_code = status, code
                done = self.pull(hub, status=2, **token)
                self.assertIn(words, done.stderr)
                self.assertEqual(len(hub.requests), 1)
                self.assertNotIn("hf_hidden", done.stderr)
        self.assertFalse(self.cache.exists())

    def test_rate_limits(self):
        with FakeHub(single()) as hub:
            hub.rate_limited = 2
            done = self.pull(hub)
            self.assertIn("answered 429; again in 1 s", done.stderr)
            self.assertGreaterEqual(hub.requests[1]["time"] - hub.requests[0]["time"], 1)
        with FakeHub(single()) as hub:
            hub.rate_limited, hub.retry_after = 1, "3600"
            shutil.rmtree(self.cache)
            self.assertIn("answered 429, and asks to wait 3600 s", self.pull(hub, status=2).stderr)

    def test_offline(self):
        with FakeHub(single()) as hub:
            self.assertIn("HF_HUB_OFFLINE says", self.pull(hub, status=2, HF_HUB_OFFLINE="1").stderr)
            self.assertIn("HF_HUB_OFFLINE says", self.run_program(hub, "run", "org/name", "-p", "hi", status=2,
                                                                  HF_HUB_OFFLINE="yes").stderr)
            self.assertEqual(hub.requests, [])

    def test_models_without_safetensors_and_bad_endpoints(self):
        with FakeHub({"config.json": b"{}", "model.gguf": b"x"}) as hub:
            self.assertIn("has no model.safetensors; there is config.json, model.gguf", self.pull(hub, status=2).stderr)
        self.assertIn("HF_ENDPOINT: 'hub.example'", self.pull("hub.example", status=2).stderr)
        password = self.pull("https://me:secret@hub.example", status=2).stderr
        self.assertIn("HF_ENDPOINT has an '@'", password)
        self.assertNotIn("secret", password)


class Together(HubTest):
    def test_two_pulls_at_once(self):
        with FakeHub(single(BIG)) as hub:
            hub.pause = 0.003
            processes = [subprocess.Popen([PROGRAM, "pull", "org/name"], env=self.environment(hub.url), text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
            said = [process.communicate(timeout=60) for process in processes]
            self.assertEqual([process.returncode for process in processes], [0, 0], said)
            self.assert_whole(hub.files, hub.files)
            self.assertLess(hub.sent, len(BIG) + MEGABYTE)
            self.assertIn("another process is fetching it", said[0][1] + said[1][1])

    def interrupted(self, number):
        with FakeHub(single(BIG)) as hub:
            hub.pause = 0.009
            # What is started in the background of a script ignores interrupts, and so would this.
            process = subprocess.Popen([PROGRAM, "pull", "org/name"], env=self.environment(hub.url), text=True,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                       preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
            begun = self.entry / "blobs" / (etag_of(BIG) + ".incomplete")
            while not begun.exists() or begun.stat().st_size < 16 * MEGABYTE:
                self.assertIsNone(process.poll())
                time.sleep(0.02)
            process.send_signal(number)
            _, said = process.communicate(timeout=10)
            self.assertEqual(process.returncode, -number)
            self.assert_nothing()
            size = begun.stat().st_size
            self.assertEqual(begun.read_bytes(), BIG[:size])
            hub.pause, before = 0, hub.sent
            done = self.pull(hub)
            self.assertIn(f"of which {size / 1e6:.1f} MB are here", done.stderr)
            self.assert_whole(hub.files, hub.files)
            self.assertTrue(any(r["range"].startswith(f"bytes={size}-") for r in hub.asked("cdn")))
            self.assertLessEqual(hub.sent - before, len(BIG) - size + MEGABYTE)
            return said

    def test_an_interrupt_leaves_the_beginning(self):
        said = self.interrupted(signal.SIGINT)
        self.assertRegex(said, r"fetching [\d.]+ of 73\.4 MB, [\d.]+ [kM]B/s, about \d+ s left")

    def test_so_does_the_end_of_the_process(self):
        self.interrupted(signal.SIGKILL)

    def test_a_damaged_beginning_is_noticed(self):
        with FakeHub(single()) as hub:
            (self.entry / "blobs").mkdir(parents=True)
            for beginning in (b"somebody else's", b"w" * 300_000):
                (self.entry / "blobs" / (etag_of(b"w" * 200_000) + ".incomplete")).write_bytes(beginning)
                self.pull(hub)
                self.assert_whole(hub.files, hub.files)
                shutil.rmtree(self.entry / "snapshots")
                (self.entry / "blobs" / etag_of(b"w" * 200_000)).unlink()

    def test_revisions(self):
        with FakeHub(single()) as hub:
            hub.revisions += ["v1.0", "refs/pr/1"]
            self.pull(hub, "org/name", "--revision", "v1.0")
            self.pull(hub, "org/name@refs/pr/1")
            self.pull(hub, f"org/name@{COMMIT}")
            refs = {str(path.relative_to(self.entry / "refs")): path.read_text()
                    for path in (self.entry / "refs").rglob("*") if path.is_file()}
            self.assertEqual(refs, {"v1.0": COMMIT, "refs/pr/1": COMMIT})
            self.assertIn("two revisions", self.pull(hub, "org/name@v1.0", "--revision", "v2", status=2).stderr)
            self.assertIn("there is no such revision", self.pull(hub, "org/name@v9", status=2).stderr)


class ListAndRemove(HubTest):
    def test_list_and_rm(self):
        files = sharded()
        with FakeHub(files) as hub:
            hub.revisions.append("v1")
            self.pull(hub)
            self.pull(hub, "org/name@v1")
            listed = self.run_program(hub, "list").stdout
            self.assertRegex(listed, r"org/name +main, v1 +65\d kB")
            own, *models = json.loads(self.run_program(hub, "list", "--json").stdout)
            self.assertEqual((own["name"], own["built_in"], own["snapshots"]), ("storyteller", True, []))
            self.assertGreater(own["bytes"], 10**7)  # as the table, which has it first
            self.assertRegex(listed.splitlines()[1], r"^storyteller +1\d\.\d MB +comes with the program$")
            self.assertEqual([m["built_in"] for m in models], [False])
            self.assertEqual([(m["name"], m["bytes"], m["unfinished_bytes"]) for m in models],
                             [("org/name", sum(len(files[name]) for name in READ), 0)])
            self.assertEqual([(s["commit"], s["revisions"], s["whole"]) for s in models[0]["snapshots"]],
                             [(COMMIT, ["main", "v1"], True)])
            # A second snapshot that shares all but one file stays whole when the first goes.
            other = self.entry / "snapshots" / ("f" * 40)
            shutil.copytree(self.entry / "snapshots" / COMMIT, other, symlinks=True)
            (other / "config.json").unlink()
            (self.entry / "blobs/other").write_bytes(b"{}")
            (other / "config.json").symlink_to("../../blobs/other")
            # What somebody linked into a snapshot is theirs.
            own = self.folder / "own.safetensors"
            own.write_bytes(b"mine")
            (self.entry / "snapshots" / COMMIT / "own.safetensors").symlink_to(own)
            removed = self.run_program(hub, "rm", "org/name@v1").stdout
            self.assertIn(f"removed org/name@v1: {len(files['config.json'])} bytes freed", removed)
            self.assertEqual([path.name for path in (self.entry / "snapshots").iterdir()], ["f" * 40])
            self.assertEqual([path for path in (self.entry / "refs").rglob("*") if path.is_file()], [])
            self.assertTrue(all(path.exists() for path in other.iterdir()))
            self.assertEqual(own.read_bytes(), b"mine")
            self.run_program(hub, "rm", "org/name")
            self.assertFalse(self.entry.exists())
            self.assertIn("org/name is not in the hub cache", self.run_program(hub, "rm", "org/name", status=2).stderr)
            self.assertIn("is no hub name", self.run_program(hub, "rm", "../cache", status=2).stderr)
            self.assertTrue(self.cache.exists())

    def test_not_while_it_is_fetched(self):
        with FakeHub(single(BIG)) as hub:
            hub.pause = 0.004
            process = subprocess.Popen([PROGRAM, "pull", "org/name"], env=self.environment(hub.url),
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            begun = self.entry / "blobs" / (etag_of(BIG) + ".incomplete")
            while not begun.exists() or begun.stat().st_size == 0:
                time.sleep(0.01)
            self.assertIn("is being fetched by another process", self.run_program(hub, "rm", "org/name", status=2).stderr)
            process.kill()
            process.wait()
            self.assertIn("begun; fourfold pull org/name goes on", self.run_program(hub, "list").stdout)


class Fetching(HubTest):
    def story(self):
        return {path.name: path.read_bytes() for path in STORY.iterdir() if path.is_file()}

    def test_run_fetches_once(self):
        with FakeHub(self.story(), model="org/story") as hub:
            words = ["run", "org/story", "-p", "Tell me a story.", "--max-tokens", "8", "--seed", "1"]
            first = self.run_program(hub, *words)
            self.assertIn("fetching org/story", first.stderr)
            asked = len(hub.requests)
            second = self.run_program(hub, *words)
            self.assertEqual(len(hub.requests), asked)  # what is here is taken as it is
            self.assertEqual(first.stdout, second.stdout)
            self.assertEqual(self.run_program(hub, *words, HF_HUB_OFFLINE="1").stdout, first.stdout)
            # A snapshot without its weights, as the hub's tools leave one, is completed.
            next((self.cache / "models--org--story").glob("snapshots/*/model-00002-of-00002.safetensors")).unlink()
            self.assertEqual(self.run_program(hub, *words).stdout, first.stdout)

    def test_serve_fetches(self):
        with FakeHub(self.story(), model="org/story") as hub:
            process = subprocess.Popen([PROGRAM, "serve", "org/story", "--port", "0"], env=self.environment(hub.url),
                                       text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            try:
                url = next(line.split()[1] for line in process.stdout if "/v1" in line)
                with urllib.request.urlopen(url + "/models", timeout=30) as answer:
                    self.assertEqual(json.load(answer)["data"][0]["id"], "org/story")
            finally:
                process.terminate()
                process.communicate(timeout=60)

    def test_what_is_not_there_is_named(self):
        with FakeHub(self.story(), model="org/story") as hub:
            self.pull(hub, "org/story")
            done = self.run_program(hub, "run", "org/stori", "-p", "hi", status=2)
            self.assertIn("Did you mean org/story?", done.stderr)


class Tls(HubTest):
    def certificate(self, name):
        key, chain = self.folder / f"{name}.key", self.folder / f"{name}.pem"
        made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                               "-keyout", key, "-out", chain, "-days", "2", "-subj", f"/CN={name}", "-addext",
                               f"subjectAltName=DNS:{name}"], capture_output=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        return chain, key

    @unittest.skipUnless(shutil.which("openssl"), "openssl, to make certificates")
    def test_certificates(self):
        right, wrong = self.certificate("localhost"), self.certificate("elsewhere.example")
        with FakeHub(single(BIG), certificate=right) as hub:
            self.assertIn("no TLS connection", self.pull(hub, status=2).stderr)
            self.assertFalse(self.cache.exists())
            self.pull(hub, SSL_CERT_FILE=str(right[0]))
            self.assert_whole(hub.files, hub.files)
        shutil.rmtree(self.cache)
        with FakeHub(single(), certificate=wrong) as hub:  # vouched for, but for another host
            self.assertIn("no TLS connection", self.pull(hub, status=2, SSL_CERT_FILE=str(wrong[0])).stderr)
        with FakeHub(single(), certificate=right) as hub:
            hub.redirect_to = "http://127.0.0.1:9/model.safetensors"
            message = self.pull(hub, status=2, SSL_CERT_FILE=str(right[0])).stderr
            self.assertIn("redirects from https to http://127.0.0.1:9/model.safetensors, which is not encrypted", message)

    def test_what_is_cached_is_not_asked_for(self):
        with FakeHub(single()) as hub:
            folder = self.pull(hub).stdout
            hub.requests.clear()
            self.assertEqual(self.pull(hub, "--cached", "org/name").stdout, folder)
            self.assertEqual(hub.requests, [])
            shutil.rmtree(self.cache)
            self.assertEqual(self.pull(hub, "--cached", "org/name", "--revision", "main").stdout, folder)
            self.assert_whole(hub.files, hub.files)

    @unittest.skipUnless(shutil.which("openssl"), "openssl, to make certificates")
    def test_proxies(self):
        chain = self.certificate("localhost")
        trusted = {"SSL_CERT_FILE": str(chain[0])}
        with FakeHub(single(BIG), certificate=chain) as hub, FakeProxy(user="me:p@ss word") as proxy:
            way = f"http://me:p%40ss%20word@{proxy.address}"
            ports = {f"localhost:{server.server_address[1]}" for server in (hub.hub, hub.cdn)}
            self.pull(hub, **trusted, https_proxy=way)
            self.assert_whole(hub.files, hub.files)
            self.assertEqual(set(proxy.connects), ports)  # every connection, to the hub and to where it redirects
            shutil.rmtree(self.cache)
            proxy.connects.clear()
            self.pull(hub, **trusted, HTTPS_PROXY=way, NO_PROXY="example.org,localhost")
            self.assertEqual(proxy.connects, [])
            shutil.rmtree(self.cache)
            message = self.pull(hub, status=2, **trusted, https_proxy=proxy.address).stderr  # no name, no scheme
            self.assertIn("wants a name and a password (HTTP/1.1 407", message)
            self.assertIn("HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT", message)
            message = self.pull(hub, status=2, **trusted, HTTPS_PROXY="socks5://127.0.0.1:1080").stderr
            self.assertIn("HTTPS_PROXY names a socks5 proxy; only http:// ones are spoken to", message)
            message = self.pull(hub, status=2, **trusted, ALL_PROXY="http://me:secret@proxy.example:port").stderr
            self.assertIn("ALL_PROXY is no address of a proxy", message)
            self.assertNotIn("secret", message)
        with FakeHub(single()) as hub, FakeProxy() as proxy:  # http is asked directly
            self.pull(hub, https_proxy=f"http://{proxy.address}")
            self.assertEqual(proxy.connects, [])


if __name__ == "__main__":
    unittest.main()
