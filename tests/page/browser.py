"""Headless Chromium through its driver, by the WebDriver protocol itself: JSON over HTTP, no packages."""
import base64
import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # how the protocol marks an element
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c", "Shift": "\ue008", "ArrowUp": "\ue013", "ArrowDown": "\ue015",
        "Control": "\ue009", "Alt": "\ue00a"}
PATIENCE_S = 60  # a machine may be busy


def missing():
    """Which of the two programs is not there, or nothing."""
    return [name for name in ("chromium", "chromedriver") if not shutil.which(name)]


class BrowserError(Exception):
    pass


class Browser:
    def __init__(self, width=900, height=760):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.profile = tempfile.mkdtemp(prefix="page_test_")
        self.driver = subprocess.Popen(["chromedriver", f"--port={port}", "--log-level=OFF"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        # No sandbox as root, and no talking to anybody: the page must work offline.
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server",
                 "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--force-device-scale-factor=1",
                 f"--window-size={width},{height}", f"--user-data-dir={self.profile}"]
        options = {"binary": shutil.which("chromium"), "args": flags}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self.session = ""
        try:
            self.until(self.driver_ready, "the driver's start")
            made = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self.driver.kill()
            raise
        self.session = "/session/" + made["sessionId"]

    def driver_ready(self):
        try:
            return self.call("GET", "/status")["ready"]
        except OSError:
            self.connection.close()
            return False

    def close(self):
        try:
            self.call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()
            self.connection.close()
            shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body)
        self.connection.request(method, self.session + path, data, {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        value = json.loads(response.read())["value"]
        if response.status != 200:
            raise BrowserError(value["message"])
        return value

    def open(self, address):
        self.call("POST", "/url", {"url": address})

    def run(self, script, *arguments):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def until(self, condition, what):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            time.sleep(.03)
        raise AssertionError(f"waited {PATIENCE_S} s for {what}")

    def find(self, selector):
        return self.call("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def find_all(self, selector):
        return [found[ELEMENT] for found in self.call("POST", "/elements", {"using": "css selector", "value": selector})]

    def click(self, selector):
        self.call("POST", f"/element/{self.find(selector)}/click", {})

    def fill(self, selector, text):
        element = self.find(selector)
        self.call("POST", f"/element/{element}/clear", {})
        self.call("POST", f"/element/{element}/value", {"text": text})

    def label(self, element):
        """The name a screen reader says."""
        return self.call("GET", f"/element/{element}/computedlabel")

    def press(self, *keys):
        """Presses keys at whatever has the focus; several at once as "Shift+Enter"."""
        actions = []
        for chord in keys:
            names = chord.split("+") if len(chord) > 1 else [chord]
            codes = [KEYS.get(name, name) for name in names]
            actions += [{"type": "keyDown", "value": code} for code in codes]
            actions += [{"type": "keyUp", "value": code} for code in reversed(codes)]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def type(self, text):
        self.press(*text)

    def devtools(self, command, parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def prefer(self, scheme):
        self.devtools("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def log(self):
        return self.call("POST", "/se/log", {"type": "browser"})

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("GET", "/screenshot")))
        return os.path.getsize(path)
