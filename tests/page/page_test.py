"""The chat page and the status page in headless Chromium: what people do there.

    page_test.py [unittest arguments]
"""
import time

from mock_server import CONTEXT, MockServer, pieces
import page_case
from page_case import PageTest


class Actions(PageTest):
    def test_01_send_and_see_the_answer(self):
        self.ask("hello")
        self.assertEqual("hello", self.text(".user .body"))
        self.assertEqual("You said: hello (1 messages)", self.answer())
        self.assertEqual("", self.browser.run("return document.querySelector('#input').value"))
        self.ask("more")
        self.assertEqual(
            ["user", "assistant", "user"], [message["role"] for message in self.last_request()["messages"]]
        )

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

    def test_04_retry_is_another_version(self):
        self.ask("count")
        self.assertEqual("Answer 1", self.answer())
        self.press_in(-1, "retry")
        self.until(lambda: self.answer() == "Answer 2", "a second answer")
        self.until_idle()
        self.assertEqual(self.sent(0), self.sent(1))
        self.assertEqual(1, self.count(".assistant"))
        self.assertEqual("2/2", self.text(".branch-count"))

    def test_05_an_answer_that_failed_gives_way(self):
        self.ask("busy once")  # the scripted server answers the second request
        self.assertEqual("You said: busy once (1 messages)", self.answer())
        self.ask("error")
        self.press_in(-1, "retry")
        self.until(lambda: len(self.server.requests) == 4, "a second request")
        self.until_idle()
        self.assertEqual(0, self.count(".branch-count"))

    def test_06_code_is_coloured_and_copied(self):
        self.browser.devtools("Browser.grantPermissions",
                              {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
        self.ask("code")
        self.assertEqual("strong em a".split(), self.browser.run(
            "return [...document.querySelectorAll('.prose p > :not(code)')].map((node) => node.localName)"))
        self.assertEqual(
            ["one", "two"],
            self.browser.run(
                "return [...document.querySelectorAll('.body > ol > li')].map((node) => node.firstChild.textContent.trim())"
            ),
        )
        self.assertEqual("1", self.text("td"))
        code = '# prints a number\ndef main(n):\n    return "value: %d" % (n * 41 + 1)'
        self.assertEqual(code, self.text(".code code"))
        self.assertEqual(["# prints a number", "def", "main", "return", '"value: %d"', "41", "1"], self.browser.run(
            "return [...document.querySelectorAll('.code code span')].map((node) => node.textContent)"))
        self.browser.click(".code .copy")
        self.until(
            lambda: self.browser.run("return document.querySelector('.code .copy').dataset.state") == "Copied",
            "the word",
        )
        self.assertEqual(code, self.browser.run("return navigator.clipboard.readText()"))

    def test_07_thinking_is_folded(self):
        self.ask("think")
        self.assertFalse(self.visible(".thinking > div"))
        self.assertIn("Thought for", self.text(".thinking summary"))
        self.assertEqual("You said: think (1 messages)", self.answer())
        self.browser.click(".thinking summary")
        # What a fold shows has a text once it has been laid out, which may take a frame.
        self.browser.until(lambda: self.text(".thinking > div") == "First I weigh it. Then I decide.", "the thinking")
        self.assertTrue(self.visible(".thinking > div"))
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
        self.settings(system="Be brief.", temperature="0.3", max_tokens="77", thinking="off", api_key="secret")
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
        self.settings(theme="light")
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
        self.until(lambda: self.visible(".edit-text"), "the field")
        self.browser.press("Control+a")
        self.browser.type("slow")
        self.browser.press("Tab", "Tab", "Enter")  # past Cancel, to Send
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
        self.assertEqual(
            "max_completion_tokens is 9; at most 8 fit. <b>Ask for fewer.</b>", self.text(".assistant .error")
        )
        self.ask("break")
        self.browser.until(lambda: self.count(".assistant .error") == 2, "the second error")
        self.assertIn("The backend has failed; see the server's log.", self.text("#messages"))
        self.assertIn("You said: break", self.answer())
        self.ask("full")
        self.assertIn("the prompt has 5000 tokens", self.text(".message:last-child .error"))
        self.assertIn("start a new chat", self.text(".message:last-child .extra"))
        self.ask("large")
        self.assertIn("at most 33554432", self.text(".message:last-child .error"))
        self.ask("long")
        self.assertIn("cut off at its token limit", self.text("#messages"))

    def test_14_a_busy_server_is_asked_again(self):
        self.ask("busy", wait=False)
        self.until_text(".assistant .waiting", "The queue is full. Asking again in 1 s.")
        self.until(lambda: self.answer() == "You said: busy (1 messages)", "the answer")
        self.assertEqual(2, len(self.server.requests))
        self.until_idle()
        self.server.requests.clear()
        self.ask("busy", wait=False)
        self.until_text(".message:last-child .waiting", "Asking again")
        self.browser.press("Escape")
        self.until_idle()
        time.sleep(1.2)
        self.assertEqual(1, len(self.server.requests))
        self.assertIn("You stopped this answer.", self.text(".message:last-child"))

    def meter(self):
        return int(self.browser.run("return document.querySelector('#context').ariaValueNow"))

    def test_15_context_meter(self):
        self.browser.until(lambda: self.visible("#context"), "the meter")
        self.ask("hello")
        # 1 token of prompt; the first piece, five words, the end.
        self.assertEqual(7, self.meter())
        self.assertEqual(f"7 of {CONTEXT:,} tokens", self.text("#context-text"))

    def test_16_stop_keeps_the_meter_right(self):
        self.ask("hello")
        self.ask("slow", wait=False)
        self.until_text(".message:last-child .body", "word5")
        self.browser.press("Escape")
        self.until_idle()
        words = len(self.answer().split())
        # The prompt is hello, five words and slow; the answer its first, empty piece and a token a word.
        self.assertEqual(7 + 1 + words, self.meter())
        self.assertIn(f"{1 + words} tokens", self.text(".message:last-child .facts"))
        # Stopped before anything was counted: the prompt is counted by asking.
        self.ask("silent please", wait=False)
        self.until(lambda: len(self.server.requests) == 3, "the request")
        self.browser.press("Escape")
        self.until_idle()
        counted = sum(len(pieces(text)) for text in self.sent(2))
        self.assertGreater(counted, 7 + words)
        self.until(lambda: self.meter() == counted, "what was counted")

    def test_17_a_reload_keeps_the_conversation(self):
        self.ask("code")
        before = self.text("#messages")
        self.reload()
        self.assertEqual(before, self.text("#messages"))
        self.ask("slow", wait=False)
        self.until_text(".message:last-child .body", "word3")
        self.reload()
        self.assertIn("word3", self.answer())
        self.until_text("#messages", "This answer was interrupted when its page was left.")
        # A page that ended without a last word: nobody goes on with its answer.
        self.ask("slow again", wait=False)
        self.until_text(".message:last-child .body", "word20")
        self.browser.run("Storage.prototype.setItem = () => {}")
        self.reload()
        self.assertIn("word", self.answer())
        self.until_text(".message:last-child", "This answer was interrupted when its page was left.")

    def test_18_what_a_model_writes_is_text(self):
        self.ask("attack")
        self.assertIn('<img src=x onerror="window.attacked=1">', self.answer())
        self.assertEqual(0, self.count("#messages img, #messages script, #messages a, #messages b"))
        self.assertIsNone(self.browser.run("return window.attacked ?? null"))

    def test_19_answers_in_crumbs_are_whole(self):
        self.ask("crumbs")
        self.assertEqual("é € 😀", self.answer())
        self.assertEqual(0, self.count(".assistant .error"))

    def test_20_answers_that_break_off_say_so(self):
        self.ask("cut")
        self.browser.until(lambda: self.count(".assistant .error") == 1, "the error")
        self.assertIn("You said: cut (1 messages)", self.answer())
        self.assertIn("The connection ended before the answer did.", self.text(".assistant .error"))
        self.browser.click("#new-chat")
        self.ask("proxy")
        self.browser.until(lambda: self.count(".assistant .error") == 1, "the error")
        self.assertEqual("502 Bad Gateway: <h1>Bad Gateway</h1>", self.text(".assistant .error"))


    def test_21_a_server_that_has_gone(self):
        gone = MockServer().start()
        self.browser.open(gone.address)
        self.until_text("#model", "mock-model")
        gone.stop()
        self.ask("are you there")
        self.until_text(".assistant .error", "The server cannot be reached.")
        self.assertIn("Nothing is lost", self.text(".assistant .extra"))
        self.assertEqual("are you there", self.text(".user .body"))

    def test_22_the_end_is_one_press_away(self):
        self.assertFalse(self.visible("#to-end"))
        self.ask("show")
        self.assertFalse(self.visible("#to-end"))
        self.browser.run("document.querySelector('#log').scrollTop = 0")
        self.until(lambda: self.visible("#to-end"), "the button")
        self.ask("slow", wait=False)
        self.until_text(".message:last-child .body", "word2")
        self.assertFalse(self.visible("#to-end"))  # who sends is at the end
        self.browser.run("document.querySelector('#log').scrollTop = 0")
        self.until(lambda: self.visible("#to-end"), "the button")
        self.until_text(".message:last-child .body", "word9")
        self.assertEqual(
            0, self.browser.run("return document.querySelector('#log').scrollTop")
        )  # who reads is left alone
        self.browser.click("#to-end")
        self.until(lambda: not self.visible("#to-end"), "the end")
        self.browser.press("Escape")
        self.until_idle()


# Each thing that a page under the policy must not be able to do, tried from within it.
TRIES = """
const refused = [];
addEventListener("securitypolicyviolation", (event) => refused.push(event.effectiveDirective));
const threw = (action) => { try { action(); return false; } catch { return true; } };
const script = document.createElement("script");
const markup = threw(() => { document.createElement("div").innerHTML = "<b>x</b>"; });
const parsed = threw(() => new DOMParser().parseFromString("<b>x</b>", "text/html"));
const text = threw(() => { script.textContent = "window.attacked = 1"; });
const style = document.createElement("style");
style.textContent = "body { color: red !important; }";
document.body.append(style);
document.body.setAttribute("style", "outline: 3px solid red");
const image = document.createElement("img");
image.src = "http://127.0.0.1:9/x.png";
document.body.append(image);
return Promise.allSettled([fetch("http://127.0.0.1:9/"), new Promise((resolve) => setTimeout(resolve, 300))])
  .then(([fetched]) => ({ markup, parsed, text, fetched: fetched.status, attacked: window.attacked ?? 0,
    outline: getComputedStyle(document.body).outlineStyle, refused: [...new Set(refused)].sort() }));
"""


class Policy(PageTest):
    def test_1_what_the_browser_refuses(self):
        tried = self.browser.run(TRIES)
        self.browser.log()  # what was refused is noted there, and meant
        self.assertEqual(
            {
                "markup": True,
                "parsed": True,
                "text": True,
                "fetched": "rejected",
                "attacked": 0,
                "outline": "none",
                "refused": ["connect-src", "img-src", "require-trusted-types-for", "style-src-attr", "style-src-elem"],
            },
            tried,
        )

    def test_2_nothing_is_let_in(self):
        policy = dict(part.strip().split(" ", 1) for part in self.server.policy.split(";"))
        self.assertEqual("'none'", policy["default-src"])
        self.assertEqual({"'self'", "'none'", "'script'"}, set(" ".join(policy.values()).split()))


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


if __name__ == "__main__":
    page_case.main()
