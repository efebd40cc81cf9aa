"""The pages as the program serves them, in headless Chromium, with the model that comes with it.

    live_test.py PROGRAM [unittest arguments]

The other tests have a server of their own that answers by script; this one shows that both speak the same language.
"""
import json
import subprocess
import sys
import urllib.request

import mock_server
import page_case

MODEL = page_case.HERE.parents[1] / "models/storyteller"
CONTEXT = 2048


class Program:
    """`fourfold serve` on a free port. It is asked directly, whatever proxy is set."""

    def __init__(self, program, *arguments):
        line = [program, "serve", MODEL, "--port", "0", "--max-context", str(CONTEXT), *arguments]
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = ""
        self.requests = []  # as the scripted server has them
        for line in self.process.stdout:
            if line.startswith("  chat page"):
                self.address = line.split()[-1].rstrip("/")
            if "Ctrl-C" in line:
                return
        raise AssertionError(f"the server ended with {self.process.wait()}")

    def get(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.address + path, data, {"Content-Type": "application/json"} if data else {}
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as response:
            return response.headers, response.read()

    def stop(self):
        self.process.terminate()
        if self.process.wait(timeout=60) != 0:
            raise AssertionError(f"the server ended with {self.process.returncode}")
        self.process.stdout.close()


class LiveTest(page_case.PageTest):
    arguments = ()

    @classmethod
    def setUpClass(cls):
        page_case.PageTest.browser = page_case.PageTest.browser or page_case.chromium.Browser()
        cls.server = Program(PROGRAM, *cls.arguments)

    def tokens(self, messages):
        return json.loads(self.server.get("/tokenize", {"messages": messages})[1])["count"]

    def status(self):
        return json.loads(self.server.get("/status.json")[1])


class Live(LiveTest):
    def test_1_a_conversation(self):
        self.until_text("#model", MODEL.name)
        self.settings(temperature="0", max_tokens="40")
        self.ask("hello")
        self.assertEqual(0, self.count("#messages .error"))
        self.assertIn("tokens", self.text(".assistant .facts"))
        used = int(self.browser.run("return document.querySelector('#context').ariaValueNow"))
        self.assertTrue(2 < used <= CONTEXT)
        self.assertIn(f"of {CONTEXT:,} tokens", self.text("#context-text"))
        # At temperature 0 the same question has the same answer, by way of the prefix cache as well.
        answer = self.answer()
        self.press_in(-1, "retry")
        self.until_text(".branch-count", "2/2")
        self.until_idle()
        self.assertEqual(answer, self.answer())
        self.reload()
        self.assertEqual(answer, self.answer())
        self.ask("and more")
        self.assertEqual(2, self.count(".assistant"))
        self.assertEqual(0, self.count("#messages .error"))

    def test_2_the_server_says_no_in_its_own_words(self):
        self.set("#input", "word " * CONTEXT)
        self.browser.click("#send")
        self.until_idle()
        self.assertIn(str(CONTEXT), self.text(".assistant .error"))
        self.assertIn("Shorten an earlier message", self.text(".assistant .extra"))

    def test_3_stop_reaches_the_engine(self):
        before = self.status()["requests"]["cancelled"]
        # A story may end before it is stopped; several hardly will.
        for _ in range(5):
            self.browser.click("#new-chat")
            self.ask("Tell me a long story about an old sailor.", wait=False)
            self.browser.until(lambda: self.text("#speed") or self.visible("#send"), "the first tokens")
            self.browser.press("Escape")
            self.until_idle()
            if "You stopped this answer." in self.text(".message:last-child"):
                break
        self.browser.until(lambda: self.status()["sequences"]["running"] == 0, "an idle engine")
        self.assertEqual(before + 1, self.status()["requests"]["cancelled"])
        # The meter says what the server would count, without what it puts around a next turn. (Cut text may be one token less.)
        used = int(self.browser.run("return document.querySelector('#context').ariaValueNow"))
        messages = [
            {"role": ("user", "assistant")[at % 2], "content": text}
            for at, text in enumerate(self.texts(".message .body"))
        ]
        around = self.tokens([messages[0], {"role": "assistant", "content": "x"}]) - self.tokens(messages[:1]) - 1
        # What is shown has lost a line break and spaces at each end of a paragraph.
        lost = sum(message["content"].count("\n") for message in messages)
        self.assertLessEqual(abs(self.tokens(messages) - around - used), 2 + lost)

    def test_7_every_setting_is_one_that_the_server_takes(self):
        self.settings(
            temperature="0.8",
            top_p="0.9",
            top_k="40",
            min_p="0.01",
            presence_penalty="0.1",
            frequency_penalty="0.1",
            repetition_penalty="1.05",
            seed="7",
            max_tokens="20",
            stop_strings="zebra\n\\n\\n",
            thinking="off",
            system="Be kind.",
        )
        self.ask("Tell me a story.")
        self.assertEqual(0, self.count("#messages .error"), self.text("#messages"))
        answer = self.answer()
        self.press_in(-1, "retry")
        self.until_text(".branch-count", "2/2")
        self.until_idle()
        self.assertEqual(answer, self.answer())  # the same seed

    def test_8_thinking_is_asked_of_the_template(self):
        self.browser.click("#open-settings")
        counts = [
            self.server.get(
                "/tokenize",
                {"messages": [{"role": "user", "content": "?"}], "chat_template_kwargs": {"enable_thinking": on}},
            )[1]
            for on in (True, False)
        ]
        known = counts[0] != counts[1]
        self.until(lambda: self.visible("#thinking-note") != known, "what is known")

    def test_4_status(self):
        self.settings(max_tokens="20")
        self.ask("hello")
        self.page("/status")
        self.until_text("#now", "Running")
        status = self.status()
        shown = self.browser.run("return document.querySelector('main').innerText")
        self.assertIn(f"of {status['sequences']['running_max']:,}", shown)
        self.assertIn(f"of {status['pages']['all']:,} pages", shown)
        self.assertEqual([], [word for word in ("NaN", "undefined", "Infinity", "null") if word in shown])
        self.assertGreater(status["requests"]["finished"], 0)
        self.assertEqual(0, status["tokens"]["per_second"])  # nobody asks now

    def test_5_the_scripted_server_has_the_same_status(self):
        def names(value, path=""):
            if not isinstance(value, dict):
                return {path}
            return set().union(*(names(inner, f"{path}/{name}") for name, inner in value.items()))

        scripted = json.loads((page_case.HERE / "status.json").read_text())
        self.assertEqual(names(self.status()), names(scripted))

    def test_6_the_policy_is_sent(self):
        headers, body = self.server.get("/")
        self.assertEqual(mock_server.security_policy(), headers["Content-Security-Policy"])
        self.assertEqual("nosniff", headers["X-Content-Type-Options"])
        self.assertEqual((page_case.HERE.parents[1] / "src/server/page/chat.html").read_bytes(), body)
        headers, body = self.server.get("/page/math/math.woff2")
        self.assertEqual("font/woff2", headers["Content-Type"])
        self.assertEqual((page_case.HERE.parents[1] / "src/server/page/math/math.woff2").read_bytes(), body)


class LiveWithKey(LiveTest):
    arguments = ("--api-key", "right")

    def test_the_key_is_asked_for(self):
        self.browser.until(lambda: self.visible("#key-wanted"), "the question")
        self.browser.type("wrong")
        self.browser.press("Enter")
        self.browser.until(lambda: "not one of" in self.text("#key-wanted"), "the question again")
        self.browser.fill("#api-key", "right")
        self.browser.press("Enter")
        self.until_text("#model", MODEL.name)
        self.settings(max_tokens="20")
        self.ask("hello")
        self.assertEqual(0, self.count("#messages .error"))


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    page_case.main()
