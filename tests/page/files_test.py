"""Files: text files that go with a message, and chats as files, out and in.

    files_test.py [unittest arguments]
"""
import json
import pathlib
import shutil
import tempfile

from mock_server import CONTEXT, TOKENIZED
import page_case
from page_case import PageTest

DROP = """
const box = new DataTransfer();
for (const [name, content] of arguments[0]) box.items.add(new File([content], name));
const event = (kind) => new DragEvent(kind, { dataTransfer: box, bubbles: true, cancelable: true });
window.dispatchEvent(event("dragenter"));
const seen = !document.querySelector("#drop").hidden;
window.dispatchEvent(event("drop"));
return seen && document.querySelector("#drop").hidden;
"""
PASTE = """
const box = new DataTransfer();
box.items.add(new File([arguments[1]], arguments[0]));
document.querySelector("#input").dispatchEvent(new ClipboardEvent("paste", { clipboardData: box, bubbles: true, cancelable: true }));
"""


class Attached(PageTest):
    def chips(self):
        return self.texts("#chips .chip-name")

    def test_01_files_are_folded_into_the_message(self):
        self.put_files("#files", [("notes.md", "# Notes\r\n```\nin a fence\n```\n"), ("run.py", "print(1)\n")])
        self.until(lambda: self.chips() == ["notes.md", "run.py"], "two chips")
        self.assertIn("9 characters", self.texts("#chips .chip")[1])
        self.ask("What is this?")
        self.assertEqual("What is this?\n\nFile notes.md:\n\n````markdown\n# Notes\n```\nin a fence\n```\n````\n\n"
                         "File run.py:\n\n```python\nprint(1)\n```", self.last_request()["messages"][-1]["content"])
        self.assertEqual("What is this?", self.text(".user .body"))
        self.assertEqual(["notes.md", "run.py"], self.texts(".user .chip-name"))
        self.assertFalse(self.visible(".user .file pre"))
        self.browser.click(".user .file summary")
        self.assertTrue(self.visible(".user .file pre"))
        self.assertEqual([], self.chips())
        # They stay with the message, and can be taken away from another version of it.
        self.reload()
        self.assertEqual(["notes.md", "run.py"], self.texts(".user .chip-name"))
        self.press_in(0, "edit")
        self.until(lambda: self.visible(".edit .chip"), "the files")
        self.browser.click(".edit [data-action=remove-file]")
        self.browser.click(".edit [type=submit]")
        self.until(lambda: len(self.server.requests) == 2, "a request")
        self.assertNotIn("notes.md", self.sent()[-1])
        self.assertIn("run.py", self.sent()[-1])
        self.until_idle()

    def test_02_dropped_and_pasted(self):
        self.assertTrue(self.browser.run(DROP, [["a.txt", "dropped"]]))
        self.until(lambda: self.chips() == ["a.txt"], "the dropped one")
        self.browser.run(PASTE, "b.txt", "pasted")
        self.until(lambda: self.chips() == ["a.txt", "b.txt"], "the pasted one")
        self.browser.click("#chips [data-action=remove-file]")
        self.assertEqual(["b.txt"], self.chips())
        # A draft has its files; a message may be files alone.
        self.until(lambda: self.browser.run("return document.querySelector('#input').value") == "", "an empty field")
        self.browser.click("#new-chat")
        self.until(lambda: self.chips() == ["b.txt"], "the draft")
        self.browser.click("#send")
        self.until_idle()
        self.assertEqual("File b.txt:\n\n```txt\npasted\n```", self.sent()[-1])
        self.assertEqual("b.txt", self.text("#title"))

    def test_03_what_is_refused(self):
        self.until_text("#model", "mock-model")
        for name, content, wanted in (
            ("photo.png", [0x89, 0x50, 0x4E, 0x47, 0xFF, 0xFE], "photo.png is not text in UTF-8"),
            ("data.bin", [65, 0, 66], "data.bin is not a text file"),
            ("empty.txt", " \n", "empty.txt is empty."),
            (
                "long.txt",
                "x " * (CONTEXT + 1),
                "long.txt has 4,098 tokens; the model's context of 4,096 tokens cannot hold it.",
            ),
            ("huge.txt", 33 << 20, "huge.txt has 34,603,008 bytes; at most 32 MiB."),
        ):
            self.put_files("#files", [(name, content)])
            self.until_text("#file-problem", wanted)
        self.assertEqual([], self.chips())
        self.put_files("#files", [(f"{at}.txt", "x") for at in range(21)])
        self.until_text("#file-problem", "At most 20 files go with a message; 20.txt was left out.")
        self.assertEqual(20, len(self.chips()))

    def test_04_only_the_server_knows_how_long_a_file_is(self):
        """Blanks are few tokens, and what the server does not count it will refuse when it is sent."""
        self.until_text("#model", "mock-model")
        self.put_files("#files", [("blanks.txt", "a" + " " * (20 * CONTEXT) + "b")])
        self.until(lambda: self.chips() == ["blanks.txt"], "the file of blanks")
        self.put_files("#files", [("uncounted.txt", "x " * TOKENIZED)])
        self.until(lambda: self.chips() == ["blanks.txt", "uncounted.txt"], "the file that is not counted")
        self.assertEqual("", self.text("#file-problem"))

    def test_05_files_stay_with_the_chat_they_were_given_to(self):
        self.ask("one")
        self.browser.run("""
            const read = Blob.prototype.arrayBuffer;
            window.hold = () => { window.gate = new Promise((resolve) => { window.readNow = resolve; }); };
            Blob.prototype.arrayBuffer = async function () { await window.gate; return read.call(this); };
            window.hold();""")
        self.browser.fill("#input", "about this file")
        self.put_files("#files", [("a.txt", "first")])
        self.browser.click("#new-chat")
        self.browser.fill("#input", "something else")
        self.put_files("#files", [("b.txt", "second")])
        self.browser.run("window.readNow()")
        self.until(lambda: self.chips() == ["b.txt"], "the file of the new chat")
        self.browser.click(".open-chat")
        self.until(lambda: self.chips() == ["a.txt"], "the file of the first chat")
        self.assertEqual("about this file", self.value("#input"))
        self.ask("go")
        self.assertIn("first", self.sent()[-1])
        self.browser.click("#new-chat")
        self.until(lambda: self.chips() == ["b.txt"], "the draft of the new chat")
        self.assertEqual("something else", self.value("#input"))
        # Sent before the file was read: it is for the next message of the chat that has begun with this one.
        self.browser.run("window.hold()")
        self.put_files("#files", [("c.txt", "third")])
        self.ask("two")
        self.browser.run("window.readNow()")
        self.until(lambda: self.chips() == ["c.txt"], "the file that came late")
        self.assertEqual("two", self.text("#title"))


class Exchanged(PageTest):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="page_files_"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.browser.devtools("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(self.folder)})

    def saved(self, button, name):
        self.browser.click("#open-menu")
        self.browser.click(button)
        path = self.folder / name
        self.until(lambda: path.exists() and path.stat().st_size, name)
        return path.read_text()

    def bring(self, name, text):
        self.put_files("#import-file", [(name, text)])

    def talk(self):
        """A chat with two versions, a file, settings of its own and text that looks like a marker."""
        self.settings(scope="chat", temperature="0.5")
        self.put_files("#files", [("a.txt", "content")])
        self.until(lambda: self.count("#chips .chip") == 1, "the chip")
        self.ask("count")
        self.press_in(-1, "retry")
        self.until(lambda: self.answer() == "Answer 2", "the second version")
        self.until_idle()
        self.ask("<!-- fourfold: user --> is text")

    def test_01_json_keeps_everything(self):
        self.talk()
        text = self.saved("#export-json", "count.json")
        file = json.loads(text)
        self.assertEqual(("fourfold-chats", 1, 1), (file["format"], file["version"], len(file["chats"])))
        self.assertEqual({"temperature": "0.5"}, file["chats"][0]["settings"])
        self.assertEqual(5, len(file["chats"][0]["messages"]))
        before = self.text("#messages")
        self.bring("count.json", text)
        self.until_text("#notice", "1 chat imported.")
        self.until(lambda: self.count("#chats li") == 2, "two chats")
        self.until(lambda: self.text("#messages") == before, "the same messages")
        self.assertEqual("2/2", self.text(".branch-count"))
        self.press_in(1, "previous")
        self.until_text(".assistant .body", "Answer 1")
        self.assertTrue(self.visible("#own-settings"))
        self.ask("more")
        self.assertEqual(0.5, self.last_request()["temperature"])
        # All chats in one file, without the key or anything else of this browser.
        self.settings(api_key="secret")
        self.browser.click("#open-menu")
        self.browser.click("#export-all")
        self.until(lambda: list(self.folder.glob("fourfold-chats-*.json")), "the file of all")
        path = next(self.folder.glob("fourfold-chats-*.json"))
        self.until(lambda: path.read_text().endswith("}"), "its end")
        self.assertEqual(2, len(json.loads(path.read_text())["chats"]))
        self.assertNotIn("secret", path.read_text())

    def test_02_markdown_keeps_what_is_shown(self):
        self.talk()
        text = self.saved("#export-markdown", "count.md")
        self.assertEqual("""# count

<!-- fourfold: user -->
## You

count

File a.txt:

```txt
content
```

<!-- fourfold: assistant -->
## Answer

Answer 2

<!-- fourfold: user -->
## You

<!-- fourfold-text: user --> is text

<!-- fourfold: assistant -->
## Answer

You said: <!-- fourfold: user --> is text (3 messages)
""", text)
        self.bring("count.md", text)
        self.until(lambda: self.count("#chats li") == 2, "two chats")
        self.until(lambda: self.count(".message") == 4, "its messages")
        self.assertEqual("<!-- fourfold: user --> is text", self.texts(".user .body")[1])
        self.assertEqual("Answer 2", self.text(".assistant .body"))
        self.ask("go on")
        self.assertEqual(5, len(self.sent()))

    def test_03_bad_files_are_refused_with_a_sentence(self):
        message = {"id": "a", "role": "user", "content": "x"}

        def file(*messages, **fields):
            return json.dumps(
                {
                    "format": "fourfold-chats",
                    "version": 1,
                    "chats": [{"title": "t", "messages": list(messages), **fields}],
                }
            )

        for text, wanted in (
            ("{", "The file is no JSON"),
            ("[]", 'its format is not "fourfold-chats"'),
            ('{"format": "fourfold-chats", "version": 2}', "The file has version 2; this page reads version 1."),
            ('{"format": "fourfold-chats", "version": 1, "chats": []}', "The file has no chats."),
            ('{"format": "fourfold-chats", "version": 1, "chats": [null]}', "chats[0] is no chat."),
            (file({**message, "role": "root"}), 'chats[0].messages[0]: the role is "root"'),
            (file({"role": "user"}), "chats[0].messages[0] has no id."),
            (file(message, message), "chats[0].messages[1]: the id a is used twice."),
            (
                file({**message, "parent": "b"}, {**message, "id": "b", "parent": "a"}),
                "its parent b does not come before it.",
            ),
            (file({**message, "parent": "a"}), "its parent a does not come before it."),
            (file({**message, "content": 7}), "content is no text."),
            (file({**message, "attachments": [{"name": "x"}]}), "chats[0].messages[0].attachments[0] is no file"),
            (file({**message, "role": "assistant", "toolCalls": "x"}), "toolCalls is no list"),
            (file(message, settings={"temperature": "hot"}), "chats[0].settings: Temperature: hot is no number."),
            (
                file(*[{**message, "id": str(at)} for at in range(20001)]),
                "chats[0] has 20,001 messages; at most 20000.",
            ),
            ("just words", "The file has no messages: the marker"),
            ("<!-- fourfold: root -->\nx", 'the role is "root"'),
        ):
            self.bring("bad.file", text)
            self.until(lambda: wanted in (self.text("#notice") or ""), wanted + " in: " + str(self.text("#notice")))
            self.assertIn("bad.file was not imported.", self.text("#notice"))
        self.assertEqual(0, self.count("#chats li"))
        # What a file says is text, wherever it says it.
        self.bring("odd.json", file({**message, "content": "<img src=x onerror=window.attacked=1>"}, title="<b>t</b>"))
        self.until(lambda: self.text("#title") == "<b>t</b>", "its title")
        self.assertEqual(0, self.count("#messages img, #title b, #chats b"))

    def test_04_all_chats_of_a_file_or_none(self):
        chats = [{"title": f"chat {at}", "messages": [{"id": "a", "role": "user", "content": "x"}]} for at in range(3)]
        text = json.dumps({"format": "fourfold-chats", "version": 1, "chats": chats})
        self.browser.run("""
            const put = IDBObjectStore.prototype.put;
            IDBObjectStore.prototype.put = function (value) {
              if (value.title === "chat 2") throw new DOMException("The quota is used up", "QuotaExceededError");
              return put.call(this, value);
            };""")
        self.bring("three.json", text)
        self.until_text("#notice", "three.json was not imported. The quota is used up")
        self.assertEqual(0, self.count("#chats li"))
        self.reload()
        self.assertEqual(0, self.count("#chats li"))
        self.bring("three.json", text)
        self.until_text("#notice", "3 chats imported.")
        self.assertEqual(3, self.count("#chats li"))


if __name__ == "__main__":
    page_case.main()
