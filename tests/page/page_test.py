"""The chat page and the status page in headless Chromium: what people do there, and whether everybody can.

    page_test.py [unittest arguments]

Without Chromium it says so and ends with 77, which ctest counts as skipped.
"""
import pathlib
import sys
import time
import unittest

import browser as chromium
from mock_server import CONTEXT, MockServer

HERE = pathlib.Path(__file__).resolve().parent
AUDIT = (HERE / "audit.js").read_text()


class PageTest(unittest.TestCase):
    """Each test begins with an empty storage."""

    key = ""
    browser = None  # one for all tests

    @classmethod
    def setUpClass(cls):
        PageTest.browser = PageTest.browser or chromium.Browser()
        cls.server = MockServer(key=cls.key).start()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def setUp(self):
        self.server.requests.clear()
        self.page("/page/icon.svg")  # of the same origin, and without a script that stores again
        self.browser.run("localStorage.clear(); sessionStorage.clear();")
        self.browser.prefer("light")
        self.browser.log()
        self.page("/")

    def tearDown(self):
        severe = [entry["message"] for entry in self.browser.log() if entry["level"] == "SEVERE"]
        # A browser notes each answer that is no 2xx; those are meant.
        self.assertEqual([], [line for line in severe if "Failed to load resource" not in line])

    # ---- words of the tests

    def page(self, path):
        self.browser.open(self.server.address + path)

    def text(self, selector):
        return self.browser.run("return document.querySelector(arguments[0])?.textContent ?? null", selector)

    def count(self, selector):
        return self.browser.run("return document.querySelectorAll(arguments[0]).length", selector)

    def visible(self, selector):
        return self.browser.run("return document.querySelector(arguments[0])?.checkVisibility() ?? false", selector)

    def until_text(self, selector, wanted):
        self.browser.until(lambda: wanted in (self.text(selector) or ""), f"'{wanted}' in {selector}")

    def until_idle(self):
        self.browser.until(lambda: self.visible("#send"), "the end of the answer")

    def ask(self, text, wait=True):
        self.browser.fill("#input", text)
        self.browser.click("#send")
        if wait:
            self.until_idle()

    def answer(self):
        return self.browser.run("return [...document.querySelectorAll('.assistant .body')].at(-1)?.textContent ?? ''")

    def last_request(self):
        return self.server.requests[-1]

    def set(self, selector, value):
        self.browser.run("document.querySelector(arguments[0]).value = arguments[1]", selector, value)


class Actions(PageTest):
    def test_01_send_and_see_the_answer(self):
        self.ask("hello")
        self.assertEqual("hello", self.text(".user .body"))
        self.assertEqual("You said: hello (1 messages)", self.answer())
        self.assertEqual("", self.browser.run("return document.querySelector('#input').value"))
        self.ask("more")
        self.assertEqual(["user", "assistant", "user"], [message["role"] for message in self.last_request()["messages"]])

    def test_02_the_answer_streams_with_its_speed(self):
        self.ask("slow", wait=False)
        self.until_text(".assistant .body", "word3")
        self.assertNotIn("word300", self.answer())
        self.until_text("#speed", "tok/s")
        # One token every 50 ms. A browser that was held up shows more at first.
        self.browser.until(lambda: 5 < float(self.text("#speed").split()[0]) < 20.5, "a speed of 20 tokens a second")
        self.browser.press("Escape")
        self.until_idle()

    def test_03_stop(self):
        self.ask("slow", wait=False)
        self.until_text(".assistant .body", "word3")
        self.browser.click("#stop")
        self.until_idle()
        self.assertIn("You stopped this answer.", self.text("#messages"))
        self.browser.until(lambda: self.last_request().get("mock_cancelled"), "the server to notice")
        kept = self.answer()
        time.sleep(.2)
        self.assertEqual(kept, self.answer())

    def test_04_retry(self):
        self.ask("hello")
        self.browser.click("[data-action=retry]")
        self.browser.until(lambda: len(self.server.requests) == 2, "a second request")
        self.until_idle()
        self.assertEqual(self.server.requests[0]["messages"], self.server.requests[1]["messages"])
        self.assertEqual(1, self.count(".assistant"))

    def test_05_edit_the_last_message(self):
        self.ask("first")
        self.ask("second")
        self.browser.click("[data-action=edit]")
        self.assertEqual("second", self.browser.run("return document.querySelector('#input').value"))
        self.ask("third")
        self.assertEqual(["first", "You said: first (1 messages)", "third"],
                         [message["content"] for message in self.last_request()["messages"]])
        self.assertEqual(2, self.count(".user"))
        self.browser.click("[data-action=edit]")
        self.browser.press("Escape")
        self.assertFalse(self.visible("#editing"))
        self.assertEqual("", self.browser.run("return document.querySelector('#input').value"))

    def test_06_code_is_coloured_and_copied(self):
        self.browser.devtools("Browser.grantPermissions",
                              {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
        self.ask("code")
        self.assertEqual("strong em a".split(), self.browser.run(
            "return [...document.querySelectorAll('.prose p > :not(code)')].map((node) => node.localName)"))
        self.assertEqual(["one", "two"], self.browser.run(
            "return [...document.querySelectorAll('.body > ol > li')].map((node) => node.firstChild.textContent.trim())"))
        self.assertEqual("1", self.text("td"))
        code = '# prints a number\ndef main(n):\n    return "value: %d" % (n * 41 + 1)'
        self.assertEqual(code, self.text(".code code"))
        self.assertEqual(["# prints a number", "def", "main", "return", '"value: %d"', "41", "1"], self.browser.run(
            "return [...document.querySelectorAll('.code code span')].map((node) => node.textContent)"))
        self.browser.click(".code .copy")
        self.until_text(".code .copy", "Copied")
        self.assertEqual(code, self.browser.run("return navigator.clipboard.readText()"))

    def test_07_thinking_is_folded(self):
        self.ask("think")
        self.assertFalse(self.visible(".thinking > div"))
        self.assertIn("Thought for", self.text(".thinking summary"))
        self.assertEqual("You said: think (1 messages)", self.answer())
        self.browser.click(".thinking summary")
        self.assertTrue(self.visible(".thinking > div"))
        self.assertEqual("First I weigh it. Then I decide.", self.text(".thinking > div"))
        self.ask("and now")
        self.assertNotIn("weigh", str(self.last_request()))

    def test_08_tool_calls_are_shown_and_answered(self):
        self.ask("tool")
        self.assertEqual("Calls weather", self.text(".tool-call h3"))
        self.assertEqual('{\n  "city": "Bern"\n}', self.text(".tool-call code"))
        self.browser.fill(".tool-answer", "12 degrees")
        self.browser.click("[data-action=send-results]")
        self.browser.until(lambda: len(self.server.requests) == 2, "the results")
        self.until_idle()
        call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}
        self.assertEqual([{"role": "assistant", "content": "", "tool_calls": [call]},
                          {"role": "tool", "tool_call_id": "call_1", "content": "12 degrees"}],
                         self.last_request()["messages"][1:])

    def test_09_settings_are_used_and_persist(self):
        self.browser.click("#open-settings")
        for selector, value in (("#system", "Be brief."), ("#temperature", "0.3"), ("#max-tokens", "77"),
                                ("#thinking", "off"), ("#api-key", "secret")):
            self.set(selector, value)
        self.browser.click("#save-settings")
        self.page("/")
        self.ask("hello")
        request = self.last_request()
        self.assertEqual({"role": "system", "content": "Be brief."}, request["messages"][0])
        self.assertEqual((0.3, 77, {"enable_thinking": False}),
                         (request["temperature"], request["max_completion_tokens"], request["chat_template_kwargs"]))
        self.browser.click("#open-settings")
        self.assertEqual("secret", self.browser.run("return document.querySelector('#api-key').value"))
        self.assertNotIn("secret", self.browser.run("return JSON.stringify({...localStorage})"))
        self.browser.press("Escape")
        self.browser.click("#open-settings")
        self.browser.run("document.querySelector('#settings details').open = true")
        self.set("#tools", "{}")
        self.browser.click("#save-settings")
        self.assertEqual("Tools: this is JSON, but not a list.", self.text("#settings-problem"))
        self.browser.press("Escape")

    def test_10_empty_settings_are_not_sent(self):
        self.ask("hello")
        self.assertEqual({"messages", "stream", "stream_options"}, set(self.last_request()) - {"mock_cancelled"})

    def test_11_dark_mode(self):
        ground = "return getComputedStyle(document.body).backgroundColor"
        light = self.browser.run(ground)
        self.browser.prefer("dark")
        self.browser.until(lambda: self.browser.run(ground) != light, "another ground")
        dark = self.browser.run(ground)
        self.browser.click("#open-settings")
        self.set("#theme", "light")
        self.browser.click("#save-settings")
        self.assertEqual(light, self.browser.run(ground))
        self.page("/")
        self.assertEqual(light, self.browser.run(ground))
        self.browser.prefer("light")
        self.browser.run("localStorage.setItem('fourfold.settings', '{\"theme\":\"dark\"}')")
        self.page("/status")
        self.assertEqual(dark, self.browser.run(ground))

    def test_12_keyboard_only(self):
        self.browser.type("one")
        self.browser.press("Shift+Enter")
        self.browser.type("two")
        self.browser.press("Enter")
        self.until_idle()
        self.assertEqual("one\ntwo", self.last_request()["messages"][-1]["content"])
        self.browser.press("ArrowUp")
        self.browser.press("Control+a")
        self.browser.type("slow")
        self.browser.press("Enter")
        self.until_text(".assistant .body", "word2")
        self.browser.press("Escape")
        self.until_idle()
        # The composer has the focus again.
        self.browser.type("think")
        self.browser.press("Enter")
        self.browser.until(lambda: self.count(".thinking:not([hidden])") == 1, "thoughts")
        self.until_idle()
        self.browser.run("document.querySelector('.thinking:not([hidden]) summary').focus()")
        self.browser.press("Enter")
        self.assertTrue(self.visible(".thinking:not([hidden]) > div"))

    def test_13_errors_are_shown_as_they_are(self):
        self.ask("error")
        self.assertEqual("max_completion_tokens is 9; at most 8 fit. <b>Ask for fewer.</b>", self.text(".assistant .error"))
        self.ask("break")
        self.browser.until(lambda: self.count(".assistant .error") == 2, "the second error")
        self.assertIn("The backend has failed; see the server's log.", self.text("#messages"))
        self.assertIn("You said: break", self.answer())
        self.ask("long")
        self.assertIn("cut off at its token limit", self.text("#messages"))

    def test_14_context_meter(self):
        self.browser.until(lambda: self.visible("#context"), "the meter")
        self.ask("hello")
        used = self.server.requests and int(self.browser.run("return document.querySelector('#context').ariaValueNow"))
        # 1 token of prompt; the first piece, five words, the end.
        self.assertEqual(7, used)
        self.assertEqual(f"7 of {CONTEXT:,} tokens", self.text("#context-text"))

    def test_15_a_reload_keeps_the_conversation(self):
        self.ask("code")
        before = self.browser.run("return document.querySelector('#messages').innerText")
        self.page("/")
        self.assertEqual(before, self.browser.run("return document.querySelector('#messages').innerText"))
        self.ask("slow", wait=False)
        self.until_text(".message:last-child .body", "word3")
        self.page("/")
        self.assertIn("word3", self.answer())
        self.assertIn("You stopped this answer.", self.text("#messages"))

    def test_16_new_chat_and_back(self):
        self.ask("hello")
        self.browser.click("#new-chat")
        self.assertEqual(0, self.count(".message"))
        self.assertTrue(self.visible("#empty"))
        self.browser.click("#bring-back")
        self.assertEqual(2, self.count(".message"))
        self.ask("slow", wait=False)
        self.until_text(".message:last-child .body", "word2")
        self.browser.click("#new-chat")
        self.until_idle()
        self.browser.until(lambda: self.last_request().get("mock_cancelled"), "the server to notice")
        self.assertEqual(0, self.count(".message"))
        self.ask("hello")
        self.assertEqual("You said: hello (1 messages)", self.answer())

    def test_17_what_a_model_writes_is_text(self):
        self.ask("attack")
        self.assertIn('<img src=x onerror="window.attacked=1">', self.answer())
        self.assertEqual(0, self.count("#messages img, #messages script, #messages a, #messages b"))
        self.assertIsNone(self.browser.run("return window.attacked ?? null"))

    def test_18_answers_in_crumbs_are_whole(self):
        self.ask("crumbs")
        self.assertEqual("é € 😀", self.answer())
        self.assertEqual(0, self.count(".assistant .error"))

    def test_19_answers_that_break_off_say_so(self):
        self.ask("cut")
        self.browser.until(lambda: self.count(".assistant .error") == 1, "the error")
        self.assertIn("You said: cut (1 messages)", self.answer())
        self.assertIn("The connection ended before the answer did.", self.text(".assistant .error"))
        self.browser.click("#new-chat")
        self.ask("proxy")
        self.browser.until(lambda: self.count(".assistant .error") == 1, "the error")
        self.assertEqual("502 Bad Gateway: <h1>Bad Gateway</h1>", self.text(".assistant .error"))


class WithKey(PageTest):
    key = "right"

    def test_01_the_key_is_asked_for_and_used(self):
        self.browser.until(lambda: self.visible("#key-wanted"), "the question")
        self.assertIn("This server wants an API key", self.text("#key-wanted"))
        self.assertEqual("api-key", self.browser.run("return document.activeElement.id"))
        self.browser.press("Escape")
        self.ask("hello")
        self.browser.until(lambda: self.visible("#key-wanted"), "the question")
        self.browser.type("right")
        self.browser.press("Enter")
        self.browser.until(lambda: self.answer() == "You said: hello (1 messages)", "the answer")
        self.until_text("#model", "mock-model")

    def test_02_the_status_page_asks_too(self):
        self.page("/status")
        self.browser.until(lambda: self.visible("#key-form"), "the question")
        self.browser.fill("#api-key", "right")
        self.browser.press("Enter")
        self.until_text("#now", "Running")
        self.assertFalse(self.visible("#key-form"))


class ForEverybody(PageTest):
    def audit(self, what):
        """Contrast and names of everything to be seen now."""
        problems = self.browser.run(AUDIT + "return audit();")
        self.assertEqual([], problems, what)
        kinds = ["button", "input", "textarea", "select", "a[href]", "summary", "[role=meter]", "[role=log]"]
        # Behind an open dialog nothing can be reached, nor has it a name.
        dialog = "dialog[open] " if self.count("dialog[open]") else ""
        elements = self.browser.find_all(", ".join(dialog + kind for kind in kinds))
        shown = self.browser.run("return arguments[0].map((node) => node.checkVisibility())",
                                 [{chromium.ELEMENT: element} for element in elements])
        names = [self.browser.label(element) for element, seen in zip(elements, shown) if seen]
        self.assertGreater(len(names), 3)
        self.assertNotIn("", names, what)

    def test_labels_and_contrast(self):
        for theme in ("light", "dark"):
            self.page("/")
            self.browser.prefer(theme)
            self.audit(f"{theme}, empty")
            for text in ("code", "think", "tool", "error"):
                self.ask(text)
            self.browser.click(".thinking:not([hidden]) summary")
            self.browser.click(".user:nth-last-child(2) [data-action=edit]")
            self.audit(f"{theme}, a conversation")
            self.browser.click("#open-settings")
            self.browser.run("document.querySelector('#settings details').open = true")
            self.audit(f"{theme}, settings")
            self.browser.press("Escape")
            self.browser.click("#new-chat")
            self.page("/status")
            self.until_text("#now", "Running")
            self.audit(f"{theme}, status")

    def walk(self, count):
        """What gets the focus with each Tab, from the page's first element that can have it."""
        self.assertEqual("new-chat", self.browser.run("return document.querySelector('button, a, input, [tabindex]').id"))
        self.browser.run("document.querySelector('#new-chat').focus()")
        names = ["new-chat"]
        for _ in range(count - 1):
            self.browser.press("Tab")
            names.append(self.browser.run(
                "const node = document.activeElement; return node.id || node.dataset.action || node.localName"))
            self.assertTrue(self.browser.run(AUDIT + "return showsFocus(document.activeElement);"), names)
        return names

    def test_focus_goes_in_reading_order_and_is_seen(self):
        self.ask("hello")
        self.page("/")
        self.assertEqual(["new-chat", "open-settings", "a", "log", "edit", "copy", "retry", "input", "send"], self.walk(9))
        self.assertEqual(0, self.count("[tabindex]:not([tabindex='0'])"))
        self.browser.click("#open-settings")
        self.assertEqual("system", self.browser.run("return document.activeElement.id"))
        self.browser.press("Escape")
        self.assertEqual("open-settings", self.browser.run("return document.activeElement.id"))

    def test_a_screen_reader_hears_what_happens(self):
        self.ask("slow", wait=False)
        self.until_text("#announcer", "Answering")
        self.assertEqual("true", self.browser.run("return document.querySelector('.assistant').ariaBusy"))
        self.browser.press("Escape")
        self.until_idle()
        self.ask("hello")
        self.assertEqual("You said: hello (3 messages)", self.text("#announcer"))
        self.ask("error")
        self.assertEqual("alert", self.browser.run("return [...document.querySelectorAll('.error')].at(-1).role"))

    def test_a_narrow_screen_has_nothing_beside_it(self):
        self.ask("code")
        self.browser.devtools("Emulation.setDeviceMetricsOverride",
                              {"width": 360, "height": 640, "deviceScaleFactor": 1, "mobile": True})
        try:
            for path in ("/", "/status"):
                self.page(path)
                self.assertLessEqual(self.browser.run("return document.documentElement.scrollWidth"), 360, path)
            # The conversation scrolls, the page around it does not.
            self.page("/")
            self.assertEqual(640, self.browser.run("return document.documentElement.scrollHeight"))
        finally:
            self.browser.devtools("Emulation.clearDeviceMetricsOverride", {})


class Status(PageTest):
    def test_numbers(self):
        self.page("/status")
        self.until_text("#now", "42.5")
        shown = self.browser.run("return document.querySelector('main').innerText")
        for wanted in ("of 16", "120 of 2,048 pages", "300 of 2,048 pages", "7 anchors, 14.7 MB of 67.1 MB", "25.0 %",
                       "75.0 %", "5.0 %", "≤ 250 ms", "99 %: ≤ 500 ms", "The tuned table has no row for this GPU",
                       "moe_stream 32x8x512 w4a16-mma nvfp4", "Set aside: weights", "holds 4.2 GB and 31 open files"):
            self.assertIn(wanted, shown)
        self.assertEqual("mock-model · 2 threads, AVX-512 · 0.1.0", self.text("#model"))
        self.browser.until(lambda: " " in self.browser.run(
            "return document.querySelector('polyline').getAttribute('points')"), "a second poll")
        self.assertEqual("", self.text("#metrics"))
        self.browser.click("details summary")
        self.until_text("#metrics", "vllm:num_requests_running 3")

    def test_a_server_that_has_gone(self):
        gone = MockServer().start()
        self.browser.open(gone.address + "/status")
        self.until_text("#now", "42.5")
        gone.stop()
        self.until_text("#problem", "The server cannot be reached.")


def main():
    if chromium.missing():
        print(f"page tests SKIPPED: no {' and no '.join(chromium.missing())} here (Debian: apt-get install chromium "
              "chromium-driver)")
        sys.exit(77)
    program = unittest.main(verbosity=2, exit=False)
    if PageTest.browser:
        PageTest.browser.close()
    sys.exit(not program.result.wasSuccessful())


if __name__ == "__main__":
    main()
