"""How much work long answers and long chats are: the browser's own count of it, not a clock.

    speed_test.py [--write] [unittest arguments]

An answer of four times the length may cost little more than four times the work; that the machine is busy changes the time
but not the ratio. --write prints the numbers.
"""

import json
import sys
import time

from mock_server import flood
import page_case
from page_case import PageTest

WRITE = "--write" in sys.argv
TOKENS = 10000


class Speed(PageTest):
    def metrics(self):
        values = {
            entry["name"]: entry["value"] for entry in self.browser.devtools("Performance.getMetrics", {})["metrics"]
        }
        return values["ScriptDuration"], values["LayoutDuration"] + values["RecalcStyleDuration"]

    def cost(self, work):
        """Seconds of scripts and of layout that some work took, and what it lasted."""
        before, start = self.metrics(), time.monotonic()
        work()
        script, layout = (after - first for after, first in zip(self.metrics(), before))
        return script, layout, time.monotonic() - start

    def stream(self, kind, count):
        self.browser.click("#new-chat")
        return self.cost(lambda: self.ask(f"stream {kind} {count}"))

    def setUp(self):
        super().setUp()
        # Time of the page's own thread: what other programs take from a busy machine does not count.
        self.browser.devtools("Performance.enable", {"timeDomain": "threadTicks"})

    def check(self, kind):
        self.stream(kind, 200)  # what is done once
        short, long = self.stream(kind, TOKENS // 4), self.stream(kind, TOKENS)
        tell = f"{kind}: {TOKENS // 4} tokens {short[0]:.2f} s scripts, {short[1]:.2f} s layout in {short[2]:.1f} s; " \
               f"{TOKENS} tokens {long[0]:.2f} s, {long[1]:.2f} s in {long[2]:.1f} s"
        if WRITE:
            print(tell)
        self.assertEqual(
            TOKENS + 1, int(self.text(".assistant .facts").split(" tokens")[0].split()[-1].replace(",", ""))
        )
        # Quadratic would be 16 times as much.
        self.assertLess(long[0] + long[1], 8 * (short[0] + short[1]) + .5, tell)

    def test_1_a_long_answer_in_prose(self):
        self.check("prose")

    def test_2_a_long_answer_in_one_block_of_code(self):
        self.check("code")

    def grown_nodes(self, kind, count):
        """Nodes that are made while a text grows by its pieces."""
        return self.browser.run(
            """
            return import("/page/markdown/render.js").then(({ renderInto }) => {
              const node = document.createElement("div");
              const observer = new MutationObserver(() => {});
              observer.observe(node, { childList: true, subtree: true });
              let [text, made] = ["", 0];
              const nodes = (from) => 1 + [...from.childNodes].reduce((sum, inner) => sum + nodes(inner), 0);
              for (const piece of arguments[0]) {
                renderInto(node, text += piece);
                for (const { addedNodes } of observer.takeRecords()) for (const added of addedNodes) made += nodes(added);
              }
              return made;
            });""",
            [delta["content"] for delta, _ in flood(kind, count)],
        )

    def test_4_only_what_grows_is_made_anew(self):
        for kind in ("prose", "code"):
            short, long = self.grown_nodes(kind, 300), self.grown_nodes(kind, 1200)
            self.assertGreater(short, 300, kind)
            self.assertLess(long, 5 * short, f"{kind}: {short} nodes for 300 pieces, {long} for 1200")

    def test_3_a_long_chat_opens_and_goes_on(self):
        answer = "Some **bold** words, `code`, a formula $x_i^2$.\n\n```python\nprint(1)\n```\n\n| a | b |\n|--|--|\n| 1 | 2 |\n"
        messages = [{"id": str(at), "parent": str(at - 1) if at else "", "role": ("user", "assistant")[at % 2],
                     "content": answer if at % 2 else f"question {at}"} for at in range(500)]
        file = {"format": "fourfold-chats", "version": 1, "chats": [{"title": "long", "messages": messages}]}
        self.put_files("#import-file", [("long.json", json.dumps(file))])
        self.until(lambda: self.text("#title") == "long", "the chat")
        self.reload()
        self.assertGreater(self.count(".prose > *"), 30)  # the end is there at once
        self.until(lambda: self.count(".prose > *") == 250 * 3, "the rest")
        script, layout = self.metrics()  # since the page was loaded
        self.assertTrue(
            self.browser.run(
                "const log = document.querySelector('#log'); return log.scrollHeight - log.scrollTop - log.clientHeight < 60"
            )
        )
        more = self.cost(lambda: self.ask("hello"))
        tell = f"500 messages: {script:.2f} s scripts, {layout:.2f} s layout to load; one more question {more[0]:.2f} s, {more[1]:.2f} s"
        if WRITE:
            print(tell)
        self.assertEqual(501, len(self.sent()))
        # A question below 500 messages does not draw them again.
        self.assertLess(more[0] + more[1], 1 + .5 * (script + layout), tell)


if __name__ == "__main__":
    if WRITE:
        sys.argv.remove("--write")
    page_case.main()
