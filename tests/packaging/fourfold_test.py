"""`import fourfold` as its users have it, on the library and the program of this build:
fourfold_test.py SOURCE (FOURFOLD_ENGINE_LIBRARY and FOURFOLD_PROGRAM name the build's)."""
import asyncio
import ctypes
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import urllib.request

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path[:0] = [str(SOURCE / "python"), str(SOURCE / "tests/hub")]
import fourfold  # noqa: E402
from fake_hub import FakeHub  # noqa: E402
from fourfold import _library  # noqa: E402

ANSWER = {"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"]}
C_SIZES = {"uint32_t": 4, "int32_t": 4, "int64_t": 8, "uint64_t": 8, "double": 8}


def header(name):
    return (SOURCE / "include/fourfold" / name).read_text()


def struct_of(name):
    """(member, bytes) of a struct of fourfold.h."""
    body = re.search(rf"typedef struct {name} {{(.*?)}} {name};", header("fourfold.h"), re.S).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    found = []
    for kind, member in re.findall(r"^\s*([\w ]+?[*\s]+)(\w+);", body, re.M):
        found.append((member, C_SIZES.get(kind.strip(), 8)))
    return found


class Header(unittest.TestCase):
    def test_structs_are_the_headers(self):
        for name, ours in (("fourfold_model_options", _library.ModelOptions),
                           ("fourfold_request_options", _library.RequestOptions)):
            self.assertEqual([(member, ctypes.sizeof(kind)) for member, kind in ours._fields_], struct_of(name))

    def test_statuses_are_the_headers(self):
        listed = re.findall(r"^  FOURFOLD_([A-Z_]+) = (\d+)", header("fourfold_kernels.h"), re.M)
        listed = [name.lower() for name, number in listed if 1 <= int(number) <= 11][:11]
        self.assertEqual(listed, list(_library.STATUS_NAMES))

    def test_versions(self):
        number = int(re.search(r"#define FOURFOLD_VERSION (\d+)", header("fourfold.h")).group(1))
        self.assertEqual(_library.VERSION, number)
        project = re.search(r"project\(fourfold VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text()).group(1)
        self.assertEqual(fourfold.__version__, project)


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = fourfold.LLM()

    @classmethod
    def tearDownClass(cls):
        cls.llm.close()

    def test_chat(self):
        answer = self.llm.chat("What are you?", seed=1, max_tokens=60)
        self.assertIn("demonstration model", answer.text)
        self.assertGreater(answer.prompt_tokens, 5)
        again = self.llm.chat([{"role": "user", "content": "What are you?"}], seed=1, max_tokens=60)
        self.assertEqual(again.text, answer.text)

    def test_many_at_once_are_what_each_is_alone(self):
        prompts = ["Once upon a time", "The fox", "In the old house"]
        alone = [self.llm.generate(prompt, max_tokens=16, seed=3).text for prompt in prompts]
        together = self.llm.generate(prompts, max_tokens=16, seed=3)
        self.assertEqual([answer.text for answer in together], alone)
        self.assertTrue(all(answer.finish_reason == "length" and answer.answer_tokens == 16 for answer in together))

    def test_stream_is_the_answer_in_pieces(self):
        messages = [{"role": "user", "content": "Tell me a story."}]
        stream = self.llm.stream(messages, seed=2, max_tokens=30)
        pieces = list(stream)
        self.assertGreater(len(pieces), 5)
        whole = self.llm.chat(messages, seed=2, max_tokens=30)
        self.assertEqual("".join(pieces), whole.text)
        self.assertEqual(stream.answer, whole)

    def test_a_closed_stream_ends_its_answer(self):
        start = time.monotonic()
        with self.llm.stream("Once upon a time", max_tokens=4000, ignore_eos=True) as stream:
            next(stream)
        self.assertLess(time.monotonic() - start, 5)
        self.assertIsNone(stream.answer)
        self.assertEqual(self.llm._running, 0)

    def test_schema(self):
        answer = self.llm.chat("Is it raining?", schema=ANSWER, seed=1, max_tokens=200)
        self.assertIn(answer.parsed, ({"answer": "yes"}, {"answer": "no"}))
        self.assertEqual(json.loads(answer.text), answer.parsed)
        cut = self.llm.chat("Is it raining?", schema=ANSWER, seed=1, max_tokens=2)
        self.assertEqual((cut.finish_reason, cut.parsed), ("length", None))
        with self.assertRaisesRegex(TypeError, "schema is a str"):
            self.llm.chat("x", schema="yes or no")

    def test_pydantic_model(self):
        class Reply:  # what pydantic's BaseModel has of use here; typed_test.py has the real one
            @staticmethod
            def model_json_schema():
                return ANSWER

            @staticmethod
            def model_validate_json(text):
                return ("validated", json.loads(text)["answer"])

        answer = self.llm.generate("It rains: ", schema=Reply, seed=1, max_tokens=200)
        self.assertEqual(answer.parsed[0], "validated")

    def test_token_ids(self):
        prompt = [100, 200, 300] * 50
        pieces = []
        whole = self.llm.generate_ids(prompt, lambda new: pieces.append(new) or True, max_tokens=20, temperature=0,
                                      ignore_eos=True)
        self.assertEqual((len(whole.ids), whole.finish_reason, whole.prompt_tokens), (20, "length", 150))
        self.assertEqual(sum(pieces, []), whole.ids)
        again = self.llm.generate_ids(prompt, max_tokens=20, temperature=0, ignore_eos=True)
        self.assertEqual((again.ids, again.cached_tokens), (whole.ids, 128))
        ended = self.llm.generate_ids(prompt, lambda new: False, max_tokens=500, ignore_eos=True)
        self.assertEqual(ended.finish_reason, "cancelled")
        self.assertLess(len(ended.ids), 20)
        with self.assertRaises(fourfold.FourfoldError):
            self.llm.generate_ids([10 ** 9])

    def test_status(self):
        before = self.llm.status()
        self.llm.generate_ids([1, 2, 3], max_tokens=5, ignore_eos=True)
        after = self.llm.status()
        self.assertEqual(after["tokens"]["prompt"] - before["tokens"]["prompt"], 3)
        self.assertEqual(after["pages"]["tokens"], 64)
        self.assertIsNone(after["kv_events"])
        with fourfold.LLM(kv_events="@tcp://127.0.0.1:0", kv_events_replay="@tcp://127.0.0.1:0") as told:
            events = told.status()["kv_events"]
        self.assertRegex(events["endpoint"], r"^tcp://127\.0\.0\.1:[1-9][0-9]*$")
        self.assertNotEqual(events["endpoint"], events["replay_endpoint"])
        for wrong in ({"kv_events": "5557"}, {"kv_events_replay": "tcp://*:0"}, {"kv_events": "tcp://*:0", "prefix_cache": False}):
            with self.assertRaises(fourfold.FourfoldError):
                fourfold.LLM(**wrong)

    def test_tools(self):
        tools = [{"type": "function", "function": {"name": "weather", "parameters": {
            "type": "object", "properties": {"place": {"enum": ["Rome", "Oslo"]}}, "required": ["place"]}}}]
        asked = dict(tools=tools, tool_choice="required", parallel_tool_calls=False, seed=1, max_tokens=200)
        answer = self.llm.chat("Is it raining in Rome?", **asked)
        self.assertEqual(answer.finish_reason, "tool_calls")
        call = answer.tool_calls[0]["function"]
        self.assertEqual(call["name"], "weather")
        self.assertIn(json.loads(call["arguments"])["place"], ("Rome", "Oslo"))
        stream = self.llm.stream([{"role": "user", "content": "Is it raining in Rome?"}], **asked)
        list(stream)
        self.assertEqual(stream.answer.tool_calls[0]["function"], call)

    def test_async(self):
        async def main():
            answers = await asyncio.gather(*(self.llm.achat("Hello", seed=seed, max_tokens=12) for seed in (1, 2)))
            pieces = [piece async for piece in self.llm.astream("Once upon a time", seed=1, max_tokens=12)]
            text = await self.llm.agenerate("Once upon a time", seed=1, max_tokens=12)
            return answers, pieces, text

        answers, pieces, text = asyncio.run(main())
        self.assertEqual([answer.text for answer in answers],
                         [self.llm.chat("Hello", seed=seed, max_tokens=12).text for seed in (1, 2)])
        self.assertEqual("".join(pieces), text.text)

    def test_a_cancelled_task_ends_its_answer(self):
        async def main():
            task = asyncio.create_task(self.llm.achat("Tell me a story.", max_tokens=4000, ignore_eos=True))
            await asyncio.sleep(0.3)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        start = time.monotonic()
        asyncio.run(main())
        while self.llm._running and time.monotonic() - start < 10:
            time.sleep(0.05)
        self.assertEqual(self.llm._running, 0)

    def test_what_is_wrong_is_said(self):
        with self.assertRaisesRegex(fourfold.FourfoldError, "nonsense") as raised:
            self.llm.chat("Hello", nonsense=1)
        self.assertEqual(raised.exception.name, "invalid_request")
        with self.assertRaisesRegex(fourfold.FourfoldError, "temperature"):
            list(self.llm.stream("Hello", temperature=-1))
        with self.assertRaisesRegex(TypeError, "a text was expected"):
            self.llm.generate(({"role": "user", "content": "x"},))
        with self.assertRaisesRegex(ZeroDivisionError, "division"):  # a callback's exception is the caller's
            self.llm.request("/v1/completions", {"prompt": "x", "max_tokens": 2}, lambda text: 1 // 0 == 1)
        with self.assertRaisesRegex(fourfold.FourfoldError, "/v1/nothing"):
            self.llm.request("/v1/nothing", {}, lambda text: True)


class Models(unittest.TestCase):
    def test_no_such_folder(self):
        with self.assertRaisesRegex(fourfold.FourfoldError, "no-such-folder"):
            fourfold.LLM("/no-such-folder")

    def test_options_reach_the_engine(self):
        with self.assertRaisesRegex(fourfold.FourfoldError, "magic"):
            fourfold.LLM(backend="magic")
        with self.assertRaisesRegex(fourfold.FourfoldError, "dense"):
            fourfold.LLM(dense="fp8")  # the cpu backend has no such thing
        facts, progress = [], []
        with fourfold.LLM("storyteller", threads=1, mtp=0, max_context=64, on_text=facts.append,
                          on_progress=lambda done, total: progress.append((done, total))) as llm:
            with self.assertRaisesRegex(fourfold.FourfoldError, "64"):
                llm.generate("Once upon a time " * 40, max_tokens=4)
        self.assertTrue(progress and progress[-1][0] >= progress[-1][1] > 10_000_000)

    def test_closing(self):
        llm = fourfold.LLM()
        stream = llm.stream("Once upon a time", max_tokens=4000, ignore_eos=True)
        next(stream)
        with self.assertRaisesRegex(RuntimeError, "1 answers are still running"):
            llm.close()
        stream.close()
        llm.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            llm.chat("Hello")
        llm.close()  # twice is once

    def test_streams_that_are_left(self):
        with self.assertRaisesRegex(KeyError, "mine"):  # and not hidden by one of ours
            with fourfold.LLM() as llm:
                for _ in llm.stream("Once upon a time", max_tokens=4000, ignore_eos=True):
                    raise KeyError("mine")
        left = subprocess.run([sys.executable, "-c", "import fourfold\nllm = fourfold.LLM()\n"
                               "for _ in llm.stream('Once upon a time', max_tokens=4000, ignore_eos=True): break"],
                              capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        self.assertEqual((left.returncode, left.stderr), (0, ""))

    def test_exceptions_of_callbacks_end_the_load(self):
        def refuse(done, total):
            raise KeyError("enough")
        with self.assertRaisesRegex(KeyError, "enough"):
            fourfold.LLM(on_progress=refuse)


class Names(unittest.TestCase):
    def test_models_of_the_hub_are_fetched_once(self):
        story = SOURCE / "models/storyteller"
        files = {path.name: path.read_bytes() for path in story.iterdir()}
        with tempfile.TemporaryDirectory() as cache, FakeHub(files) as hub, unittest.mock.patch.dict(
                os.environ, {"HF_ENDPOINT": hub.url, "HF_HUB_CACHE": cache, "HF_HUB_OFFLINE": "0"}):
            for _ in range(2):
                with fourfold.LLM("org/name") as llm:
                    self.assertTrue(llm.model.startswith(cache), llm.model)
                    self.assertTrue(llm.generate("Once", max_tokens=4, seed=1).text)
                asked = len(hub.requests)
                self.assertGreater(asked, 0)
                hub.files = {}  # a second time nothing is asked for
            self.assertEqual(len(hub.requests), asked)
            with self.assertRaisesRegex(FileNotFoundError, "org/other is neither a folder nor could it be fetched"):
                fourfold.LLM("org/other")


def health(*words):
    """`fourfold health`, which containers ask."""
    return subprocess.run([fourfold._files.program(), "health", *words], capture_output=True).returncode


class Paths(http.server.BaseHTTPRequestHandler):
    asked = []

    def do_GET(self):
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


class Serving(unittest.TestCase):
    def test_health_behind_a_path(self):
        with http.server.HTTPServer(("127.0.0.1", 0), Paths) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.assertEqual(health(f"http://127.0.0.1:{server.server_port}/base"), 0)
            server.shutdown()
        self.assertEqual(Paths.asked, ["/base/health"])

    def test_a_server_with_keys_is_ready_for_who_has_one(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("# ours\r\nsecret-key-of-a-test\r\n")
            keys.flush()
            with fourfold.serve(port=0, grace=0, api_key_file=keys.name) as server:
                self.assertEqual(health(server.url), 0)
                self.assertEqual(health(server.url, "--ready"), 1)
                self.assertEqual(health(server.url, "--ready", "--api-key-file", keys.name), 0)

    def test_serve(self):
        with fourfold.serve(port=0, grace=1, served_model_name=["tale"], log_requests=True) as server:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(server.url + "/v1/models", timeout=60) as reply:
                self.assertEqual(json.load(reply)["data"][0]["id"], "tale")
            done = threading.Event()
            self.assertEqual(health(server.url), 0)
            self.assertEqual(health(server.url, "--ready"), 0)
        self.assertEqual(health(server.url), 1)
        threading.Thread(target=lambda: (server.wait(), done.set()), daemon=True).start()
        self.assertTrue(done.wait(10))

    def test_what_it_says_when_it_does_not_start(self):
        with self.assertRaisesRegex(fourfold.FourfoldError, "ended with 64:\\n.*--no-such"):
            fourfold.serve(port=0, no_such_option=1)


if __name__ == "__main__":
    unittest.main()
