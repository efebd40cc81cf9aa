"""Several chats: the side bar, branches, drafts, two tabs, files in and out, and what an earlier version left.

    chats_test.py [unittest arguments]
"""
import json

import page_case
from page_case import PageTest

# What the page has stored, read past the page.
STORED = """
const done = (request) => new Promise((resolve) => { request.onsuccess = () => resolve(request.result); });
return done(indexedDB.open("fourfold")).then((database) => {
  const tables = database.transaction([...database.objectStoreNames]);
  const all = [...database.objectStoreNames].map((name) => done(tables.objectStore(name).getAll()).then((rows) => [name, rows]));
  return Promise.all(all).then((entries) => { database.close(); return Object.fromEntries(entries); });
});
"""


class ChatsTest(PageTest):
    def titles(self):
        return self.texts("#chats .chat-title")

    def open_chat(self, title):
        self.browser.run(
            "[...document.querySelectorAll('.open-chat')].find((node) => node.title === arguments[0]).click()", title
        )
        self.until(lambda: self.text("#title") == title, title)

    def stored(self):
        return self.browser.run(STORED)

    def conversation(self):
        return self.texts(".message .body")


class Several(ChatsTest):
    def test_01_chats_have_titles_and_are_kept(self):
        self.ask("What is a # fox? Tell me")
        self.assertEqual("What is a fox? Tell me", self.text("#title"))
        self.browser.click("#new-chat")
        self.assertEqual("New chat", self.text("#title"))
        self.assertTrue(self.visible("#empty"))
        self.ask("second")
        self.until(lambda: self.titles() == ["second", "What is a fox? Tell me"], "two chats")
        self.open_chat("What is a fox? Tell me")
        self.assertEqual("You said: What is a # fox? Tell me (1 messages)", self.answer())
        self.reload()
        self.assertEqual(["second", "What is a fox? Tell me"], self.titles())
        self.assertEqual("What is a fox? Tell me", self.text("#title"))  # the address says which
        self.browser.call("POST", "/back", {})
        self.until(lambda: self.text("#title") != "What is a fox? Tell me", "the way back")

    def test_02_search_rename_delete_undo(self):
        for text in ("foxes and rivers", "bears", "whales"):
            self.browser.click("#new-chat")
            self.ask(text)
        self.browser.fill("#search", "RIVER")
        self.until(lambda: self.titles() == ["foxes and rivers"], "one title")
        self.browser.fill("#search", "said: bears")  # in the text of an answer
        self.until(lambda: self.titles() == ["bears"], "one text")
        self.assertIn("You said: bears", self.text(".snippet"))
        self.assertIn("1 chat found", self.text("#search-count"))
        self.browser.fill("#search", "nothing like it")
        self.until_text("#no-chats", "No chat has these words.")
        self.browser.press("Escape")
        self.until(lambda: len(self.titles()) == 3, "all again")

        self.browser.click("#chats li:first-child [data-action=rename]")
        self.browser.press("Control+a")
        self.browser.type("Big fish")
        self.browser.press("Enter")
        self.until(lambda: self.titles() == ["Big fish", "bears", "foxes and rivers"], "the new title")
        self.until_text("#title", "Big fish")

        self.browser.click("#chats li:first-child [data-action=delete]")
        self.until(lambda: self.titles() == ["bears", "foxes and rivers"], "two chats")
        self.assertEqual(0, self.count(".message"))
        self.browser.click("#notice button")
        self.until(lambda: self.titles() == ["Big fish", "bears", "foxes and rivers"], "three again")
        self.until(lambda: self.count(".message") == 2, "its messages")

    def test_02b_what_an_earlier_search_finds_late_is_not_shown(self):
        for text in ("foxes and rivers", "bears"):
            self.browser.click("#new-chat")
            self.ask(text)
        # While the search for RIVER reads the last chat, which has the word, the next one is typed.
        self.browser.run("""
            const search = document.querySelector("#search");
            const typed = (text) => { search.value = text; search.dispatchEvent(new Event("input")); };
            const getAll = IDBIndex.prototype.getAll;
            let left = 2;
            IDBIndex.prototype.getAll = function (...query) {
              if (--left === 0) typed("said: bears");
              return getAll.apply(this, query);
            };
            typed("RIVER");""")
        self.until(lambda: "found" in self.text("#search-count"), "the end of the search")
        self.assertEqual(["bears"], self.titles())

    def test_03_deleted_is_gone(self):
        self.ask("secret words")
        self.browser.run("Date.now = ((now) => () => now() - 120000)(Date.now)")  # deleted two minutes ago
        self.browser.click("#chats [data-action=delete]")
        self.until(lambda: self.titles() == [], "no chats")
        self.reload()
        self.until(lambda: "secret" not in json.dumps(self.stored()), "an empty store")

    def test_04_an_answer_goes_on_behind_another_chat(self):
        self.ask("slow", wait=False)
        self.until_text(".assistant .body", "word3")
        self.browser.click("#new-chat")
        self.assertTrue(self.visible("#send"))
        self.assertEqual(1, self.count("#chats li.running"))
        self.ask("hello")
        self.assertEqual("You said: hello (1 messages)", self.answer())
        self.open_chat("slow")
        self.assertTrue(self.visible("#stop"))
        seen = len(self.answer())
        self.until(lambda: len(self.answer()) > seen, "more of it")
        self.browser.press("Escape")
        self.until_idle()
        self.until(lambda: self.server.requests[0].get("mock_cancelled"), "the server to notice")

    def test_05_drafts_are_kept_by_chat(self):
        self.ask("one")
        self.browser.fill("#input", "half a thought")
        self.browser.click("#new-chat")
        self.assertEqual("", self.value("#input"))
        self.browser.fill("#input", "another")
        self.open_chat("one")
        self.until(lambda: self.value("#input") == "half a thought", "the draft")
        self.browser.type(", and more")
        self.browser.run("localStorage.setItem('fourfold.leaving.x', '{\"messages\": [')")  # half of what a page left
        self.reload()  # at once: nothing has been saved since the last letter
        self.until(lambda: self.value("#input") == "half a thought, and more", "the draft")
        self.assertEqual([], self.browser.run("return Object.keys(localStorage)"))
        self.browser.click("#new-chat")
        self.until(lambda: self.value("#input") == "another", "the draft of the new chat")
        # A message that is edited has its own.
        self.open_chat("one")
        self.press_in(0, "edit")
        self.until(lambda: self.visible(".edit-text"), "the field")
        self.browser.type(" and a half")
        self.until(lambda: "one and a half" in json.dumps(self.stored()["drafts"]), "the draft")
        self.reload()
        self.press_in(0, "edit")
        self.until(lambda: self.count(".edit-text") and self.value(".edit-text") == "one and a half", "the draft")
        self.browser.press("Escape")
        self.assertEqual("one", self.text(".user .body"))

    def test_06_what_an_earlier_version_left(self):
        self.page("/page/icon.svg")
        self.clear_storage()
        answer = {"role": "assistant", "content": "Hello you", "reasoning": "hm", "toolCalls": [], "finish": "stop",
                  "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
        now = [{"role": "user", "content": "hello there"}, answer]
        before = [{"role": "user", "content": "older"}, {"role": "assistant", "content": "yes", "toolCalls": []}]
        self.browser.run(
            "localStorage.setItem('fourfold.conversation', arguments[0]); localStorage.setItem('fourfold.previous', arguments[1]);"
            "localStorage.setItem('fourfold.settings', '{\"temperature\":\"0.3\"}')",
            json.dumps(now),
            json.dumps(before),
        )
        self.page("/")
        self.assertEqual(["hello there", "older"], self.titles())
        self.assertEqual(["fourfold.settings"], self.browser.run("return Object.keys(localStorage)"))
        self.open_chat("hello there")
        self.assertEqual(["hello there", "Hello you"], self.conversation())
        self.until_text("#context-text", "7 of")
        self.ask("and now")
        self.assertEqual(["hello there", "Hello you", "and now"], self.sent())
        self.assertEqual(0.3, self.last_request()["temperature"])
        self.reload()
        self.assertEqual(2, len(self.titles()))


class WithoutStorage(ChatsTest):
    def before_load(self, script):
        made = self.browser.devtools("Page.addScriptToEvaluateOnNewDocument", {"source": script})
        self.addCleanup(self.browser.devtools, "Page.removeScriptToEvaluateOnNewDocument", made)
        self.page("/")

    def test_1_a_browser_that_keeps_nothing(self):
        self.before_load("IDBFactory.prototype.open = () => { throw new DOMException('no', 'SecurityError'); };")
        self.until_text("#notice", "This browser keeps nothing for this page")
        self.ask("one")
        self.browser.click("#new-chat")
        self.ask("two")
        self.until(lambda: self.titles() == ["two", "one"], "two chats")
        self.browser.fill("#input", "a draft")
        self.open_chat("one")
        self.assertEqual(["one", "You said: one (1 messages)"], self.conversation())
        self.open_chat("two")
        self.until(lambda: self.value("#input") == "a draft", "the draft")

    def test_2_a_full_disk_is_said_and_loses_nothing(self):
        self.ask("one")
        self.browser.run(
            "IDBObjectStore.prototype.put = () => { throw new DOMException('The quota is used up', 'QuotaExceededError'); }"
        )
        self.ask("two")
        self.until_text("#notice", "This could not be stored: The quota is used up")
        self.assertEqual("You said: two (3 messages)", self.answer())
        self.ask("three")
        self.assertEqual(5, len(self.sent()))


class Branches(ChatsTest):
    def test_01_any_message_can_be_edited_and_all_versions_stay(self):
        for text in ("one", "two", "three"):
            self.ask(text)
        self.press_in(2, "edit")
        self.until(lambda: self.visible(".edit-text"), "the field")
        self.assertEqual("two", self.value(".edit-text"))
        self.browser.press("Control+a")
        self.browser.type("other")
        self.browser.click(".edit [type=submit]")
        self.until_idle()
        self.until(lambda: len(self.server.requests) == 4, "a request")
        self.until_idle()
        self.assertEqual(["one", "You said: one (1 messages)", "other"], self.sent())
        self.assertEqual(
            ["one", "You said: one (1 messages)", "other", "You said: other (3 messages)"], self.conversation()
        )
        self.assertEqual(["2/2"], self.texts(".branch-count"))
        self.press_in(2, "previous")
        self.assertEqual(
            [
                "one",
                "You said: one (1 messages)",
                "two",
                "You said: two (3 messages)",
                "three",
                "You said: three (5 messages)",
            ],
            self.conversation(),
        )
        self.assertEqual(["1/2"], self.texts(".branch-count"))
        self.assertEqual("next", self.browser.run("return document.activeElement.dataset.action"))
        self.browser.press("Enter")
        self.assertEqual("other", self.conversation()[2])
        # What is shown is shown again after a reload, and going on goes on from there.
        self.press_in(2, "previous")
        self.until(lambda: len(self.conversation()) == 6, "the first version")
        self.reload()
        self.assertEqual(6, len(self.conversation()))
        self.press_in(2, "next")
        self.ask("on")
        self.assertEqual(
            ["one", "You said: one (1 messages)", "other", "You said: other (3 messages)", "on"], self.sent()
        )

    def test_02_answers_have_versions_too(self):
        self.ask("count")
        self.ask("more")
        self.press_in(1, "retry")
        self.until(lambda: self.answer() == "Answer 3", "another answer")
        self.until_idle()
        self.assertEqual(2, len(self.conversation()))
        self.press_in(1, "previous")
        self.assertEqual(["count", "Answer 1", "more", "You said: more (3 messages)"], self.conversation())
        # One that is edited is sent as it was edited.
        self.press_in(1, "edit")
        self.until(lambda: self.visible(".edit-text"), "the field")
        self.browser.press("Control+a")
        self.browser.type("My own words")
        self.browser.click(".edit [type=submit]")
        self.until(lambda: self.conversation() == ["count", "My own words"], "the edited one")
        self.assertEqual("3/3", self.text(".branch-count"))
        self.assertIn("Edited by you.", self.text("#messages"))
        self.ask("go on")
        self.assertEqual(["count", "My own words", "go on"], self.sent())

    def test_03_the_first_message_has_versions(self):
        self.ask("one")
        self.browser.press("ArrowUp")
        self.until(lambda: self.visible(".edit-text"), "the field")
        self.browser.type("!")
        self.browser.press("Escape")
        self.assertEqual(1, len(self.server.requests))
        self.press_in(0, "edit")
        self.until(lambda: self.visible(".edit-text"), "the field")
        self.browser.type(" more")
        self.browser.click(".edit [type=submit]")
        self.until(lambda: self.conversation() == ["one more", "You said: one more (1 messages)"], "the new version")
        self.until_idle()
        self.press_in(0, "previous")
        self.assertEqual(["one", "You said: one (1 messages)"], self.conversation())


class InTwoTabs(ChatsTest):
    def setUp(self):
        super().setUp()
        self.first = self.browser.call("GET", "/window")
        self.second = self.browser.call("POST", "/window/new", {"type": "tab"})["handle"]
        self.go(self.second)
        self.page("/")
        self.go(self.first)

    def tearDown(self):
        self.go(self.second)
        self.browser.call("DELETE", "/window")
        self.go(self.first)
        super().tearDown()

    def go(self, tab):
        self.browser.call("POST", "/window", {"handle": tab})


class TwoTabs(InTwoTabs):
    def test_01_chats_of_both_are_kept(self):
        self.ask("from the first")
        self.go(self.second)
        self.until(lambda: self.titles() == ["from the first"], "the other tab's chat")
        self.ask("from the second")
        self.go(self.first)
        self.until(lambda: self.titles() == ["from the second", "from the first"], "both")
        self.ask("more of the first")
        self.reload()
        self.assertEqual({"from the first", "from the second"}, set(self.titles()))
        self.assertEqual(8 - 2, len(self.stored()["messages"]))

    def test_02_both_write_into_one_chat(self):
        self.ask("root")
        address = self.browser.call("GET", "/url")
        self.go(self.second)
        self.browser.open(address)
        self.until_text("#title", "root")
        # At the same time: neither hears of the other's message before its own is sent.
        for tab, text in ((self.second, "slow B"), (self.first, "slow A")):
            self.go(tab)
            self.browser.run("BroadcastChannel.prototype.postMessage = () => {}")
            self.ask(text, wait=False)
        for tab in (self.first, self.second):
            self.go(tab)
            self.until_text(".message:last-child .body", "word2")
            self.browser.press("Escape")
            self.until_idle()
        contents = [message["content"] for message in self.stored()["messages"]]
        self.assertEqual(1, contents.count("slow A"))
        self.assertEqual(1, contents.count("slow B"))
        for tab in (self.first, self.second):
            self.go(tab)
            self.reload()
            self.assertEqual(
                ["root", "slow"], [text[:4] for text in self.conversation() if not text.startswith(("You", "word"))]
            )
            self.assertIn("/2", self.text(".branch-count"))  # both are versions, one arrow apart
        # Who hears of an answer that is being written elsewhere does not send below it.
        self.ask("slow C", wait=False)
        self.go(self.first)
        self.until_text(".message:last-child .extra", "Being written in another tab")
        self.ask("too early")
        self.until_text("#notice", "being written in another tab")
        self.assertEqual("too early", self.value("#input"))
        self.browser.fill("#input", "")
        self.go(self.second)
        self.browser.press("Escape")
        self.until_idle()
        # A title and settings changed in different tabs are both there.
        self.settings(scope="chat")
        self.go(self.first)
        self.browser.click("#chats [data-action=rename]")
        self.browser.press("Control+a")
        self.browser.type("named")
        self.browser.press("Enter")
        self.go(self.second)
        self.until_text("#title", "named")
        self.assertEqual([("named", {})], [(chat["title"], chat["settings"]) for chat in self.stored()["chats"]])

    def test_03_an_answer_is_seen_in_the_other_tab(self):
        self.ask("slow", wait=False)
        self.until_text(".assistant .body", "word1")
        address = self.browser.call("GET", "/url")
        self.go(self.second)
        self.browser.open(address)
        self.until_text(".assistant .extra", "Being written in another tab")
        self.until_text(".assistant .body", "word20")
        self.go(self.first)
        self.browser.press("Escape")
        self.until_idle()
        self.go(self.second)
        self.until_text(".assistant .extra", "You stopped this answer.")

    def test_04_drafts_of_two_new_chats(self):
        self.browser.fill("#input", "typed in the first")
        self.go(self.second)
        self.browser.fill("#input", "typed in the second")
        self.until(lambda: len(self.stored()["drafts"]) == 2, "two drafts")
        self.reload()
        self.until(lambda: self.value("#input") == "typed in the second", "its own draft")
        # From now on too busy to say that it is there, as a tab behind another may be: its draft is not taken for left.
        self.browser.run("BroadcastChannel.prototype.postMessage = () => {}")
        self.go(self.first)
        self.reload()
        self.until(lambda: self.value("#input") == "typed in the first", "its own draft")

    def test_05_deleted_in_the_other_tab(self):
        self.ask("short life")
        address = self.browser.call("GET", "/url")
        self.go(self.second)
        self.browser.open(address)
        self.until_text("#title", "short life")
        self.browser.fill("#input", "not sent yet")
        self.go(self.first)
        self.browser.click("#chats [data-action=delete]")
        self.go(self.second)
        self.until_text("#notice", "deleted in another tab")
        self.assertEqual("not sent yet", self.value("#input"))
        self.assertEqual("New chat", self.text("#title"))

    def test_06_a_tab_that_was_thought_gone_has_the_last_word(self):
        self.ask("slow", wait=False)
        self.until(lambda: "writing" in [message.get("finish") for message in self.stored()["messages"]], "a first part")
        # It does not answer when it is called, and stores nothing more before the end; and the browser has no locks.
        self.browser.run("const now = Date.now(); Date.now = () => now; BroadcastChannel.prototype.postMessage = () => {}")
        address = self.browser.call("GET", "/url")
        self.go(self.second)
        self.browser.devtools(
            "Page.addScriptToEvaluateOnNewDocument",
            {"source": "Object.defineProperty(navigator, 'locks', { value: undefined })"},
        )
        self.reload()
        self.browser.open(address)
        self.until_text(".assistant .extra", "This answer was interrupted")
        self.go(self.first)
        self.until_text(".assistant .body", "word20")
        self.browser.press("Escape")
        self.until_idle()
        self.go(self.second)
        self.reload()
        self.assertIn("word20", self.answer())
        self.until_text(".assistant .extra", "You stopped this answer.")


if __name__ == "__main__":
    page_case.main()
