"""The pages as the program serves them, in headless Chromium, with the model that comes with it.

    live_test.py PROGRAM [unittest arguments]
    live_test.py PROGRAM --screenshots FOLDER    the pictures of the documentation

The other tests have a server of their own that answers by script; this one shows that both speak the same language.
"""
import json
import subprocess
import sys
import threading
import time
import urllib.request

import mock_server
import page_test

MODEL = page_test.HERE.parents[1] / "models/storyteller"
CONTEXT = 2048


class Program:
    """`fourfold serve` on a free port. It is asked directly, whatever proxy is set."""

    def __init__(self, *arguments):
        line = [PROGRAM, "serve", MODEL, "--port", "0", "--max-context", str(CONTEXT), *arguments]
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = ""
        self.requests = []  # as the scripted server has them
        for line in self.process.stdout:
            if line.startswith("  chat page"):
                self.address = line.split()[-1].rstrip("/")
            if "Ctrl-C" in line:
                return
        raise AssertionError(f"the server ended with {self.process.wait()}")

    def get(self, path, key=""):
        request = urllib.request.Request(self.address + path, headers={"Authorization": "Bearer " + key})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as response:
            return response.headers, response.read().decode()

    def stop(self):
        self.process.terminate()
        if self.process.wait(timeout=60) != 0:
            raise AssertionError(f"the server ended with {self.process.returncode}")
        self.process.stdout.close()


class LiveTest(page_test.PageTest):
    arguments = ()

    @classmethod
    def setUpClass(cls):
        page_test.PageTest.browser = page_test.PageTest.browser or page_test.chromium.Browser()
        cls.server = Program(*cls.arguments)

    def set_up(self, **fields):
        self.browser.click("#open-settings")
        for field, value in fields.items():
            self.set("#" + field.replace("_", "-"), value)
        self.browser.click("#save-settings")

    def status(self):
        return json.loads(self.server.get("/status.json")[1])


class Live(LiveTest):
    def test_1_a_conversation(self):
        self.until_text("#model", MODEL.name)
        self.set_up(temperature="0", max_tokens="40")
        self.ask("hello")
        self.assertEqual(0, self.count("#messages .error"))
        self.assertIn("tokens", self.text(".assistant .facts"))
        used = int(self.browser.run("return document.querySelector('#context').ariaValueNow"))
        self.assertTrue(2 < used <= CONTEXT)
        self.assertIn(f"of {CONTEXT:,} tokens", self.text("#context-text"))
        # At temperature 0 the same question has the same answer, by way of the prefix cache as well.
        answer = self.answer()
        self.browser.click("[data-action=retry]")
        self.until_idle()
        self.assertEqual(answer, self.answer())
        self.page("/")
        self.assertEqual(answer, self.answer())
        self.ask("and more")
        self.assertEqual(2, self.count(".assistant"))
        self.assertEqual(0, self.count("#messages .error"))

    def test_2_the_server_says_no_in_its_own_words(self):
        self.set_up(max_tokens=str(CONTEXT + 1))
        self.ask("hello")
        self.assertIn(str(CONTEXT), self.text(".assistant .error"))
        self.assertIn("max_completion_tokens", self.text(".assistant .error"))

    def test_3_stop_reaches_the_engine(self):
        before = self.status()["requests"]["cancelled"]
        # A story may end before it is stopped; several hardly will.
        for _ in range(5):
            self.ask("Tell me a long story about an old sailor.", wait=False)
            self.browser.until(lambda: self.text("#speed") or self.visible("#send"), "the first tokens")
            self.browser.press("Escape")
            self.until_idle()
            if "You stopped this answer." in self.text(".message:last-child"):
                break
        self.browser.until(lambda: self.status()["sequences"]["running"] == 0, "an idle engine")
        self.assertEqual(before + 1, self.status()["requests"]["cancelled"])

    def test_4_status(self):
        self.set_up(max_tokens="20")
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

        scripted = json.loads((page_test.HERE / "status.json").read_text())
        self.assertEqual(names(self.status()), names(scripted))

    def test_6_the_policy_is_sent(self):
        headers, body = self.server.get("/")
        self.assertEqual(mock_server.security_policy(), headers["Content-Security-Policy"])
        self.assertEqual("nosniff", headers["X-Content-Type-Options"])
        self.assertEqual((page_test.HERE.parents[1] / "src/server/page/chat.html").read_text(), body)


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
        self.set_up(max_tokens="20")
        self.ask("hello")
        self.assertEqual(0, self.count("#messages .error"))


def ask_directly(server, text):
    body = json.dumps({"messages": [{"role": "user", "content": text}], "max_completion_tokens": 1500, "ignore_eos": True}).encode()
    request = urllib.request.Request(server.address + "/v1/chat/completions", body, {"Content-Type": "application/json"})
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=300).read()


def take_screenshots(folder):
    browser = page_test.chromium.Browser(width=1000, height=860)
    server = Program()
    try:
        browser.open(server.address)
        browser.prefer("light")
        browser.fill("#input", "Tell me a story about a fox and a river.")
        browser.click("#send")
        browser.until(lambda: browser.run("return document.querySelector('#send').checkVisibility()"), "an answer")
        time.sleep(.5)
        browser.screenshot(folder + "/chat-page.png")
        asking = [threading.Thread(target=ask_directly, args=(server, f"Tell me a story about {number} bears."))
                  for number in range(6)]
        for thread in asking:
            thread.start()
        browser.open(server.address + "/status")
        browser.prefer("dark")
        time.sleep(6)
        browser.screenshot(folder + "/status-page.png")
        for thread in asking:
            thread.join()
    finally:
        browser.close()
        server.stop()


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    if sys.argv[1:2] == ["--screenshots"]:
        take_screenshots(sys.argv[2])
    else:
        page_test.main()
