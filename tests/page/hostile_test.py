"""Texts that nobody would write: none takes the page away, and none costs more than its length.

    hostile_test.py [unittest arguments]
"""
import json

import page_case
from page_case import PageTest

# Changes messages of the stored chats past the page: as a broken or newer version might have left them.
DAMAGE = """
const done = (request) => new Promise((resolve) => { request.onsuccess = () => resolve(request.result); });
return done(indexedDB.open("fourfold")).then(async (database) => {
  const table = database.transaction("messages", "readwrite").objectStore("messages");
  for (const message of await done(table.getAll())) await done(table.put({ ...message, ...arguments[0] }));
  database.close();
});
"""


class Opened(PageTest):
    """A chat is opened by its address, as a reload does it: whatever is in it, the page goes on."""

    def bring(self, content):
        messages = [{"id": "1", "role": "user", "content": "q"}, {"id": "2", "parent": "1", "role": "assistant", "content": content}]
        file = {"format": "fourfold-chats", "version": 1, "chats": [{"title": "odd", "messages": messages}]}
        self.put_files("#import-file", [("odd.json", json.dumps(file))])
        self.until(lambda: self.text("#title") == "odd", "the chat")

    def goes_on(self):
        self.assertEqual("yes", self.browser.run("return document.body.dataset.ready"))
        self.ask("hello")
        self.assertIn("You said: hello", self.answer())

    def test_1_formulae_without_end(self):
        for tex in (r"\vec", r"\sqrt", r"\not", r"\hat", r"\frac1"):
            content = f"$${tex * (19000 // len(tex))}x$$"
            self.bring(content)
            self.reload()
            self.assertEqual(content.strip("$"), self.text(".assistant .tex-error"))
        self.goes_on()

    def test_2_a_text_that_cannot_be_drawn_is_shown_as_it_is(self):
        text = "*a*\n\nb  c"
        self.bring(text)
        made = self.browser.devtools("Page.addScriptToEvaluateOnNewDocument", {"source": """
            const create = Document.prototype.createElement;
            Document.prototype.createElement = function (name) {
              if (name === "em") throw new RangeError("no more of these");
              return create.call(this, name);
            };"""})
        self.addCleanup(self.browser.devtools, "Page.removeScriptToEvaluateOnNewDocument", made)
        self.reload()
        self.assertEqual([text], self.texts(".assistant .plain-text"))
        self.assertEqual("Shown as plain text: no more of these",
                         self.browser.run("return document.querySelector('.plain-text').title"))
        self.goes_on()
        # While an answer grows, too, and back to nodes when it can be drawn.
        shown = self.browser.run("""
            return import("/page/markdown/render.js").then(({ renderInto }) => {
              const node = document.createElement("div");
              return ["a\\n\\n*b", "a\\n\\n*b*", "a\\n\\n*b* c", "d"].map((text) => { renderInto(node, text); return node.innerHTML; });
            });""")
        title = 'title="Shown as plain text: no more of these"'
        self.assertEqual(["<p>a</p><p>*b</p>", f'<p class="plain-text" {title}>a\n\n*b*</p>',
                          f'<p class="plain-text" {title}>a\n\n*b* c</p>', "<p>d</p>"], shown)

    def test_3_a_damaged_chat_is_left_for_a_new_one(self):
        self.bring("fine")
        self.browser.run(DAMAGE, {"attachments": 7})
        self.reload()
        self.until_text("#notice", "This chat cannot be opened: ")
        self.assertEqual(["New chat", 0], [self.text("#title"), self.count(".message")])
        self.assertEqual("", self.browser.run("return location.hash"))
        self.goes_on()


if __name__ == "__main__":
    page_case.main()
