"""Whether everybody can use the pages: names, contrast, keyboard, screen readers, narrow screens.

    everybody_test.py [unittest arguments]
"""
import browser as chromium
import page_case
from page_case import AUDIT, PageTest

KINDS = "button input textarea select a[href] summary [role=meter] [role=log] [role=group] nav aside".split()


class ForEverybody(PageTest):
    def audit(self, what):
        """Contrast and names of everything to be seen now."""
        problems = self.browser.run(AUDIT + "return audit();")
        self.assertEqual([], problems, what)
        if what.startswith("dark"):
            return  # colours have changed, names have not
        # Behind an open dialog nothing can be reached, nor has it a name.
        dialog = "dialog[open] " if self.count("dialog[open]") else ""
        elements = self.browser.find_all(", ".join(dialog + kind for kind in KINDS))
        shown = self.browser.run(
            "return arguments[0].map((node) => node.checkVisibility({ visibilityProperty: true }) && !node.closest('[inert]'))",
            [{chromium.ELEMENT: element} for element in elements],
        )
        names = [self.browser.label(element) for element, seen in zip(elements, shown) if seen]
        self.assertGreater(len(names), 0)
        self.assertNotIn("", names, what)

    def focused(self):
        return self.browser.run(
            "const node = document.activeElement; return node.id || node.dataset.action || node.className || node.localName"
        )

    def walk(self, start, count):
        """What gets the focus with each Tab, and whether that is seen."""
        self.browser.run("document.querySelector(arguments[0]).focus()", start)
        names = [self.focused()]
        for _ in range(count - 1):
            self.browser.press("Tab")
            names.append(self.focused())
            self.assertTrue(self.browser.run(AUDIT + "return showsFocus(document.activeElement);"), names)
        return names

    def test_1_labels_and_contrast(self):
        for theme in ("light", "dark"):
            self.page("/")
            self.browser.prefer(theme)
            self.audit(f"{theme}, empty")
            for text in ("show", "think", "tool", "error"):
                self.ask(text)
            self.put_files("#files", [("a.txt", "x"), ("b.png", [255])])
            self.until(lambda: self.count("#chips .chip") == 1, "the chip")
            self.browser.click(".thinking:not([hidden]) summary")
            self.audit(f"{theme}, a conversation")
            self.press_in(0, "edit")
            self.until(lambda: self.visible(".edit-text"), "the field")
            self.audit(f"{theme}, editing")
            self.browser.press("Escape")
            self.browser.click("#open-settings")
            self.browser.run("document.querySelector('#settings details').open = true")
            self.audit(f"{theme}, settings")
            self.browser.press("Escape")
            self.browser.click("#open-menu")
            self.audit(f"{theme}, menu")
            self.browser.press("Escape")
            self.browser.click("#open-shortcuts")
            self.audit(f"{theme}, keys")
            self.browser.press("Escape")
            self.browser.click("#chats [data-action=delete]")
            self.until(lambda: self.visible("#notice"), "the notice")
            self.audit(f"{theme}, a notice")
            self.page("/status")
            self.until_text("#now", "Running")
            self.audit(f"{theme}, status")

    def test_2_focus_goes_in_reading_order_and_is_seen(self):
        self.ask("hello")
        self.reload()
        order = "close-side new-chat search open-chat rename delete open-settings button+wide open-shortcuts open-menu " \
                "log copy edit copy edit retry input attach send"
        self.assertEqual([name.replace("+", " ") for name in order.split()],
                         self.walk("#close-side", 19))
        self.assertEqual(0, self.count("[tabindex]:not([tabindex='0'])"))
        self.browser.click("#open-settings")
        self.assertEqual("system", self.focused())
        self.browser.press("Escape")
        self.assertEqual("open-settings", self.focused())
        for opener, dialog in (("#open-menu", "#menu"), ("#open-shortcuts", "#shortcuts")):
            self.browser.click(opener)
            self.assertTrue(self.visible(dialog))
            self.browser.press("Escape")
            self.assertFalse(self.visible(dialog))
            self.assertEqual(opener[1:], self.focused())

    def test_3_a_screen_reader_hears_what_happens(self):
        self.ask("slow", wait=False)
        self.until_text("#announcer", "Answering")
        self.assertEqual("true", self.browser.run("return document.querySelector('.assistant').ariaBusy"))
        self.until_text(".assistant .body", "word1")
        self.browser.press("Escape")
        self.until_idle()
        self.ask("hello")
        self.until_text("#announcer", "You said: hello (3 messages)")
        self.ask("error")
        self.assertEqual("alert", self.browser.run("return [...document.querySelectorAll('.error')].at(-1).role"))

    def test_4_narrow_screens(self):
        for text in ("show", "code", "wide"):
            self.ask(text)
        self.settings(scope="chat")
        for width in (390, 320):
            self.at_width(width, 700)
            for path in ("/", "/status"):
                self.page(path)
                self.assertLessEqual(self.browser.run("return document.documentElement.scrollWidth"), width, path)
            self.page("/")
            self.browser.click("#toggle-side")
            self.until(lambda: self.browser.run("return document.getAnimations().length") == 0, "the end of the motion")
            self.assertEqual([], self.browser.run(AUDIT + "return brokenWords();"), f"the side bar at {width}")
            self.browser.click(".open-chat")
            self.until(lambda: self.count(".message") == 6, "the chat")
            self.assertFalse(self.browser.run("return document.querySelector('#page').inert"))
            self.assertEqual([], self.browser.run(AUDIT + "return brokenWords();"), f"the chat at {width}")
            # The conversation scrolls, the page around it does not.
            self.assertEqual(700, self.browser.run("return document.documentElement.scrollHeight"))
            for opener in ("#own-settings", "#open-menu"):
                self.browser.click(opener)
                self.assertEqual([], self.browser.run(AUDIT + "return brokenWords();"), f"{opener} at {width}")
                self.browser.press("Escape")
            # Boxes of tasks stand beside their text, and within what is painted of a message.
            self.assertEqual(
                [],
                self.browser.run(
                    "return [...document.querySelectorAll('.task > input')].filter((box) => box.getBoundingClientRect().left < "
                    "box.closest('.message').getBoundingClientRect().left).length ? ['a box is cut'] : []"
                ),
            )
            # A table that scrolls leaves a sentence its room.
            self.assertGreater(
                self.browser.run("return document.querySelector('td.long').getBoundingClientRect().width"), 150
            )
            # What is wider than the screen scrolls by itself.
            self.assertEqual(
                [],
                self.browser.run(
                    "return [...document.querySelectorAll('.message *')].filter((node) => node.getBoundingClientRect().right > innerWidth + 1 && "
                    "!node.closest('.table, .math-block, pre')).map((node) => node.outerHTML.slice(0, 80))"
                ),
            )

    def test_5_the_bar_over_a_narrow_page(self):
        self.ask("hello")
        self.at_width(390)
        self.reload()
        self.assertFalse(self.visible("#veil"))
        self.browser.click("#toggle-side")
        self.until(lambda: self.visible("#veil"), "the bar")
        self.assertEqual("search", self.focused())
        self.audit("the bar over the page")
        self.assertTrue(self.browser.run("return document.querySelector('#page').inert"))
        self.browser.press("Escape")
        self.assertFalse(self.visible("#veil"))
        self.assertEqual("input", self.focused())

    def test_6_motion_that_is_not_wanted(self):
        moving = "return document.getAnimations().length"
        self.ask("silent", wait=False)
        self.until_text(".assistant .waiting", "Reading")
        self.assertEqual(1, self.browser.run(moving))
        self.browser.devtools(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
        )
        self.addCleanup(self.browser.devtools, "Emulation.setEmulatedMedia", {"features": []})
        self.until(lambda: self.browser.run(moving) == 0, "stillness")
        self.browser.press("Escape")
        self.at_width(390)
        self.assertEqual(
            "0s", self.browser.run("return getComputedStyle(document.querySelector('#side')).transitionDuration")
        )


class Keys(PageTest):
    def test_1_the_list(self):
        self.browser.run("document.activeElement.blur()")
        self.browser.press("?")
        self.assertTrue(self.visible("#shortcuts"))
        listed = self.text("#shortcut-list")
        for words in ("New chat", "Search chats", "Settings", "Copy the last answer", "Stop the answer"):
            self.assertIn(words, listed)
        self.browser.press("Escape")
        self.assertFalse(self.visible("#shortcuts"))
        self.browser.click("#input")
        self.browser.type("what?")  # is text where text is typed
        self.assertEqual("what?", self.value("#input"))
        self.browser.press("Control+/")
        self.assertTrue(self.visible("#shortcuts"))

    def test_2_they_do_what_they_say(self):
        self.ask("first")
        self.browser.press("Control+Shift+o")
        self.assertEqual("New chat", self.text("#title"))
        self.ask("second")
        self.browser.press("Alt+ArrowDown")
        self.until_text("#title", "first")
        self.browser.press("Alt+ArrowUp")
        self.until_text("#title", "second")
        self.browser.press("Control+k")
        self.assertEqual("search", self.browser.run("return document.activeElement.id"))
        self.browser.type("first")
        self.until(lambda: self.count("#chats li") == 1, "one chat")
        self.browser.press("Enter")
        self.until_text("#title", "first")
        self.browser.press("Control+b")
        self.until(
            lambda: not self.visible("#side") or self.browser.run("return document.querySelector('#side').inert"),
            "no side bar",
        )
        self.browser.press("Control+b")
        self.browser.press("Control+,")
        self.assertTrue(self.visible("#settings"))
        self.browser.press("Escape")
        self.browser.run("document.activeElement.blur()")
        self.browser.press("/")
        self.assertEqual("input", self.browser.run("return document.activeElement.id"))
        self.assertEqual("", self.value("#input"))
        self.browser.run("document.activeElement.blur()")
        self.browser.press("e")
        self.until(lambda: self.visible(".edit-text"), "the field")
        self.browser.press("Escape")
        self.browser.run("document.activeElement.blur()")
        self.browser.press("r")
        self.until(lambda: len(self.server.requests) == 3, "another answer")
        self.until_idle()
        self.browser.run("document.activeElement.blur()")
        self.browser.press("n")
        self.until_text("#title", "New chat")

    def test_3_single_letters_can_be_switched_off(self):
        self.settings(single_keys="off")
        self.browser.run("document.activeElement.blur()")
        self.browser.press("?")
        self.assertFalse(self.visible("#shortcuts"))
        self.browser.press("Control+/")
        self.assertTrue(self.visible("#shortcuts"))


if __name__ == "__main__":
    page_case.main()
