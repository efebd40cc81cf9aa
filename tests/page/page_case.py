"""What the tests of the pages share: one Chromium, a server that answers by script, and words for what people do.

Without Chromium a test says so and ends with 77, which ctest counts as skipped.
"""
import pathlib
import sys
import unittest

import browser as chromium
from mock_server import MockServer

HERE = pathlib.Path(__file__).resolve().parent
AUDIT = (HERE / "audit.js").read_text()


class PageTest(unittest.TestCase):
    """Each test begins with nothing stored."""

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
        self.clear_storage()
        self.browser.prefer("light")
        self.browser.log()
        self.page("/")

    def clear_storage(self):
        self.browser.run("localStorage.clear(); sessionStorage.clear();")
        self.browser.devtools(
            "Storage.clearDataForOrigin", {"origin": self.server.address, "storageTypes": "indexeddb"}
        )

    def tearDown(self):
        severe = [entry["message"] for entry in self.browser.log() if entry["level"] == "SEVERE"]
        # A browser notes each answer that is no 2xx; those are meant.
        self.assertEqual([], [line for line in severe if "Failed to load resource" not in line])

    # ---- words of the tests

    def page(self, path):
        self.browser.open(self.server.address + path)
        if path.startswith("/#") or path == "/":
            self.browser.until(lambda: self.browser.run("return document.body.dataset.ready"), "the page")

    def reload(self):
        self.browser.call("POST", "/refresh", {})
        self.browser.until(lambda: self.browser.run("return document.body.dataset.ready"), "the page")

    def text(self, selector):
        return self.browser.run("return document.querySelector(arguments[0])?.textContent ?? null", selector)

    def texts(self, selector):
        return self.browser.run(
            "return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent)", selector
        )

    def value(self, selector):
        return self.browser.run("return document.querySelector(arguments[0]).value", selector)

    def count(self, selector):
        return self.browser.run("return document.querySelectorAll(arguments[0]).length", selector)

    def visible(self, selector):
        return self.browser.run("return document.querySelector(arguments[0])?.checkVisibility() ?? false", selector)

    def until(self, condition, what):
        return self.browser.until(condition, what)

    def until_text(self, selector, wanted):
        self.browser.until(lambda: wanted in (self.text(selector) or ""), f"'{wanted}' in {selector}")

    def until_idle(self):
        self.browser.until(lambda: self.visible("#send"), "the end of the answer")

    def ask(self, text, wait=True):
        """Types a message and sends it."""
        self.browser.run("document.querySelector('#input').value = ''; document.querySelector('#input').focus()")
        self.browser.devtools("Input.insertText", {"text": text})
        self.browser.press("Enter")
        if wait:
            self.until_idle()

    def press_in(self, message, action):
        """Presses a button of a message, by the message's place on the page: -1 is the last."""
        done = self.browser.run("""
            const message = [...document.querySelectorAll(".message")].at(arguments[0]);
            const button = message?.querySelector(`[data-action="${arguments[1]}"]`);
            button?.click();
            return Boolean(button);""", message, action)
        self.assertTrue(done, f"no {action} in message {message}")

    def answer(self):
        return self.browser.run("return [...document.querySelectorAll('.assistant .body')].at(-1)?.textContent ?? ''")

    def sent(self, at=-1):
        return [message["content"] for message in self.server.requests[at]["messages"]]

    def last_request(self):
        return self.server.requests[-1]

    def set(self, selector, value):
        self.browser.run("document.querySelector(arguments[0]).value = arguments[1]", selector, value)

    def settings(self, **fields):
        self.browser.click("#open-settings")
        for field, value in fields.items():
            self.set("#" + field.replace("_", "-"), value)
        self.browser.click("#save-settings")

    def at_width(self, width, height=844):
        self.browser.devtools("Emulation.setDeviceMetricsOverride",
                              {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True})
        self.addCleanup(self.browser.devtools, "Emulation.clearDeviceMetricsOverride", {})

    def put_files(self, selector, files):
        """Files as the browser would get them from its dialog, a drop or the clipboard: [(name, text, list of bytes, or
        how many of them)]."""
        self.browser.run("""
            const contentOf = (given) => typeof given === "string" ? given :
              typeof given === "number" ? "x".repeat(given) : new Uint8Array(given);
            const files = arguments[1].map(([name, content]) => new File([contentOf(content)], name));
            const box = new DataTransfer();
            for (const file of files) box.items.add(file);
            const field = document.querySelector(arguments[0]);
            field.files = box.files;
            field.dispatchEvent(new Event("change"));""", selector, files)


def main():
    if chromium.missing():
        print(f"page tests SKIPPED: no {' and no '.join(chromium.missing())} here (Debian: apt-get install chromium "
              "chromium-driver)")
        sys.exit(77)
    program = unittest.main(verbosity=2, exit=False)
    if PageTest.browser:
        PageTest.browser.close()
    sys.exit(not program.result.wasSuccessful())
