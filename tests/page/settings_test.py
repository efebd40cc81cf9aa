"""The settings: what is sent, for all chats or one, and the way back to the model's own.

    settings_test.py [unittest arguments]
"""
import re

import mock_server
import page_case
from page_case import PageTest

GIVEN = {
    "temperature": ("0.7", 0.7),
    "top_p": ("0.9", 0.9),
    "top_k": ("40", 40),
    "min_p": ("0.05", 0.05),
    "presence_penalty": ("-1.5", -1.5),
    "frequency_penalty": ("0.5", 0.5),
    "repetition_penalty": ("1.1", 1.1),
    "seed": ("7", 7),
}
USUAL = {"messages", "stream", "stream_options"}


class SettingsTest(PageTest):
    def own_fields(self):
        return {name: value for name, value in self.last_request().items() if name not in USUAL | {"mock_cancelled"}}


class Settings(SettingsTest):
    def test_1_every_field_is_sent_and_reset(self):
        self.settings(
            **{name: text for name, (text, _) in GIVEN.items()},
            max_tokens="77",
            stop_strings="END\n\\n\\n",
            system="Be brief.",
            thinking="on",
            tools='[{"type": "function", "function": {"name": "f"}}]',
        )
        self.ask("hello")
        self.assertEqual(
            {
                **{name: value for name, (_, value) in GIVEN.items()},
                "max_completion_tokens": 77,
                "stop": ["END", "\n\n"],
                "chat_template_kwargs": {"enable_thinking": True},
                "tools": [{"type": "function", "function": {"name": "f"}}],
            },
            self.own_fields(),
        )
        self.assertEqual({"role": "system", "content": "Be brief."}, self.last_request()["messages"][0])
        # One by one: each field has its button, which can be pressed while there is something to reset.
        self.browser.click("#open-settings")
        fields = self.browser.run(
            "return [...document.querySelectorAll('#settings [data-action=reset]')].map((node) => node.dataset.field)"
        )
        self.assertEqual(13, len(fields))
        for field in ("top-k", "stop-strings"):
            self.browser.run(
                "document.querySelector(arguments[0]).scrollIntoView({ block: 'center' })", f"[data-field={field}]"
            )
            self.browser.click(f"[data-field={field}]")
        self.assertTrue(self.browser.run("return document.querySelector('[data-field=top-k]').disabled"))
        self.browser.click("#save-settings")
        self.ask("again")
        self.assertEqual({"top_k", "stop"}, ({*GIVEN, "stop"} - set(self.own_fields())))
        self.browser.click("#open-settings")
        self.browser.click("#all-default")
        self.browser.click("#save-settings")
        self.ask("once more")
        self.assertEqual({}, self.own_fields())
        self.assertEqual("user", self.last_request()["messages"][0]["role"])

    def test_2_a_chat_may_have_its_own(self):
        self.settings(temperature="0.5", system="For all.")
        self.ask("one")
        self.browser.click("#open-settings")
        self.browser.run(
            "const scope = document.querySelector('#scope'); scope.value = 'chat'; scope.dispatchEvent(new Event('change'))"
        )
        self.assertEqual("0.5", self.value("#temperature"))  # it begins with everybody's
        self.set("#temperature", "0.9")
        self.browser.click("#save-settings")
        self.assertTrue(self.visible("#own-settings"))
        self.ask("two")
        self.assertEqual({"temperature": 0.9}, self.own_fields())
        self.browser.click("#new-chat")
        self.assertFalse(self.visible("#own-settings"))
        self.settings(temperature="0.1")
        self.ask("three")
        self.assertEqual({"temperature": 0.1}, self.own_fields())
        self.browser.run("[...document.querySelectorAll('.open-chat')].at(-1).click()")
        self.until(lambda: self.visible("#own-settings"), "the first chat")
        self.reload()
        self.ask("four")
        self.assertEqual(({"temperature": 0.9}, "For all."), (self.own_fields(), self.sent()[0]))
        # Back to everybody's.
        self.settings(scope="all")
        self.until(lambda: not self.visible("#own-settings"), "no more of its own")
        self.ask("five")
        self.assertEqual({"temperature": 0.1}, self.own_fields())

    def test_3_what_cannot_be_is_said(self):
        for field, text, wanted in (("tools", "{}", "Tools: this is JSON, but not a list."), ("tools", "[", "Tools: "),
                                    ("stop_strings", "\n".join("abc" for _ in range(65)), "Stop strings: at most 64.")):
            self.browser.click("#open-settings")
            self.browser.run("document.querySelector('#settings details').open = true")
            self.set("#" + field.replace("_", "-"), text)
            self.browser.click("#save-settings")
            self.until_text("#settings-problem", wanted)
            self.browser.press("Escape")
        # The browser itself says what is out of range.
        self.browser.click("#open-settings")
        self.set("#top-p", "1.5")
        self.browser.click("#save-settings")
        self.assertTrue(self.visible("#settings"))
        self.assertFalse(self.browser.run("return document.querySelector('#top-p').validity.valid"))
        self.browser.press("Escape")
        self.ask("hello")
        self.assertEqual({}, self.own_fields())

    def test_7_the_bounds_are_the_servers(self):
        """The page says at once what the server would refuse: the same numbers as in base/sampling_limits.h."""
        header = (mock_server.ROOT / "src/base/sampling_limits.h").read_text()
        limits = {name: float(value) for name, value in re.findall(r"\b(k\w+) = ([\d.]+)", header)}
        shown = self.browser.run("""
            return import("/page/fields.js").then(({ kMostStops, kNumbers }) =>
              ({ stops: kMostStops, ...Object.fromEntries(kNumbers.map(({ field, min, max }) => [field, [min, max]])) }));""")
        self.assertEqual([0, limits["kTemperatureMost"]], shown["temperature"])
        self.assertEqual([limits["kRepetitionPenaltyLeast"], limits["kRepetitionPenaltyMost"]], shown["repetition_penalty"])
        self.assertEqual(limits["kStopCountMax"], shown["stops"])

    def test_4_arrows_go_by_steps(self):
        self.browser.click("#open-settings")
        self.browser.click("#temperature")
        self.browser.press("ArrowUp", "ArrowUp", "ArrowDown")
        self.assertEqual("0.05", self.value("#temperature"))
        self.browser.press("ArrowDown", "ArrowDown")
        self.assertEqual("0", self.value("#temperature"))
        self.browser.click("#save-settings")
        self.ask("hello")
        self.assertEqual({"temperature": 0}, self.own_fields())

    def test_5_thinking_where_the_template_knows_it(self):
        self.browser.click("#open-settings")
        self.until(lambda: not self.visible("#thinking-note"), "a switch")
        self.browser.press("Escape")
        self.server.thinks = False
        self.addCleanup(setattr, self.server, "thinks", True)
        self.reload()
        self.browser.click("#open-settings")
        self.until(lambda: self.visible("#thinking-note"), "the note")
        self.assertTrue(self.browser.run("return document.querySelector('#thinking').disabled"))

    def test_6_two_tabs_change_different_ones(self):
        first = self.browser.call("GET", "/window")
        second = self.browser.call("POST", "/window/new", {"type": "tab"})["handle"]
        self.browser.call("POST", "/window", {"handle": second})
        self.page("/")
        self.browser.click("#open-settings")
        self.browser.call("POST", "/window", {"handle": first})
        self.settings(temperature="0.3")
        self.browser.call("POST", "/window", {"handle": second})
        self.set("#top-p", "0.8")
        self.browser.click("#save-settings")
        self.browser.call("DELETE", "/window")
        self.browser.call("POST", "/window", {"handle": first})
        self.ask("hello")
        self.assertEqual({"temperature": 0.3, "top_p": 0.8}, self.own_fields())


if __name__ == "__main__":
    page_case.main()
