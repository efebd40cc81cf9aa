"""The pictures of the documentation: docs/chat-page*.png and docs/status-page.png.

    screenshots.py PROGRAM FOLDER

The program with the model that comes with it; the chats are imported, as a file of chats is, so that the pictures show
tables, formulae and code and not only stories. Needs pngquant (Debian's package of that name): pictures of 256 colours
are a third as large.
"""

import json
import shutil
import subprocess
import sys
import threading
import time
import urllib.request

import browser as chromium
import live_test
from mock_server import SHOWCASE

DAY = 24 * 3600 * 1000
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
DESKTOP = {"width": 1200, "height": 860, "deviceScaleFactor": 1, "mobile": False}
QUESTION = "How likely is a value more than three standard deviations away? With the formula, please."
OTHERS = [
    ("Bread with little yeast", 0),
    ("A regular expression for dates", 0),
    ("Fox and river", 1),
    ("Packing list for the mountains", 1),
    ("Why is my query slow?", 4),
    ("Letter to the landlord", 5),
    ("Moments of the normal distribution", 12),
    ("Birthday rhymes", 20),
]


def chats():
    """A file of chats: the one that is shown, in two versions, and titles for the side bar."""
    now = int(time.time() * 1000)
    shown = [
        {"id": "q", "role": "user", "content": QUESTION},
        {"id": "a", "parent": "q", "role": "assistant", "content": "Rarely."},
        {"id": "b", "parent": "q", "role": "assistant", "content": SHOWCASE},
    ]
    all_chats = [{"title": "Three standard deviations", "messages": shown, "current": "b", "updated": now}]
    all_chats += [
        {
            "title": title,
            "messages": [{"id": "q", "role": "user", "content": title}],
            "updated": now - days * DAY - 60000 * (at + 1),
        }
        for at, (title, days) in enumerate(OTHERS)
    ]
    return json.dumps({"format": "fourfold-chats", "version": 1, "chats": all_chats})


class Pictures:
    def __init__(self, program, folder):
        self.browser, self.folder = chromium.Browser(width=1200, height=860), folder
        self.server = live_test.Program(program)

    def take(self, name, size, theme):
        self.browser.devtools("Emulation.setDeviceMetricsOverride", size)
        self.browser.prefer(theme)
        time.sleep(.5)
        path = f"{self.folder}/{name}.png"
        self.browser.screenshot(path)
        subprocess.run(["pngquant", "--force", "--speed", "1", "--output", path, "256", path], check=True)

    def until(self, script):
        self.browser.until(lambda: self.browser.run("return " + script), script)

    def chat(self):
        self.browser.open(self.server.address)
        self.until("document.body.dataset.ready")
        self.browser.run("""
            const box = new DataTransfer();
            box.items.add(new File([arguments[0]], "chats.json"));
            const field = document.querySelector("#import-file");
            field.files = box.files;
            field.dispatchEvent(new Event("change"));""", chats())
        self.until("document.querySelectorAll('#chats li').length > 5")
        self.browser.click("#chats li .open-chat")
        self.until("document.querySelectorAll('.message').length === 2")
        self.browser.run("document.querySelector('#notice').hidden = true; return document.fonts.ready.then(() => 0)")
        top = "document.querySelector('#log').scrollTop = 0; document.activeElement.blur()"
        self.browser.run(top)
        self.take("chat-page", DESKTOP, "light")
        self.take("chat-page-dark", DESKTOP, "dark")
        self.browser.run("document.querySelector('#open-settings').click(); document.activeElement.blur()")
        self.take("chat-page-settings", DESKTOP, "light")
        self.browser.press("Escape")
        self.browser.run(top)
        self.browser.devtools("Emulation.setDeviceMetricsOverride", PHONE)
        self.browser.run(top)
        self.take("chat-page-phone", PHONE, "light")
        self.take("chat-page-phone-dark", PHONE, "dark")
        self.browser.run("document.querySelector('#toggle-side').click(); document.activeElement.blur()")
        self.take("chat-page-phone-chats", PHONE, "light")

    def ask(self, text):
        body = json.dumps(
            {"messages": [{"role": "user", "content": text}], "max_completion_tokens": 1500, "ignore_eos": True}
        ).encode()
        request = urllib.request.Request(
            self.server.address + "/v1/chat/completions", body, {"Content-Type": "application/json"}
        )
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=300).read()

    def status(self):
        asking = [
            threading.Thread(target=self.ask, args=(f"Tell me a story about {number} bears.",)) for number in range(6)
        ]
        for thread in asking:
            thread.start()
        self.browser.open(self.server.address + "/status")
        time.sleep(5)
        self.take("status-page", {**DESKTOP, "width": 1000}, "dark")
        for thread in asking:
            thread.join()

    def close(self):
        self.browser.close()
        self.server.stop()


def main(program, folder):
    if not shutil.which("pngquant"):
        sys.exit("screenshots: pngquant is missing (Debian: apt-get install pngquant)")
    pictures = Pictures(program, folder)
    try:
        pictures.chat()
        pictures.status()
    finally:
        pictures.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
