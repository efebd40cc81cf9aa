"""`fourfold chat` at a terminal: a pseudo-terminal of the standard library types, and reads what is drawn.

    chat_terminal_test.py PROGRAM

What a line became is read from the file that /save writes; how it was drawn, from the terminal. For programs with libedit.
"""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import stat
import struct
import sys
import tempfile
import termios
import time
import unittest

PROGRAM = ""
LIMIT_S = 120  # for one thing to happen, on a loaded machine
UP, DOWN, RIGHT, LEFT = b"\x1b[A", b"\x1b[B", b"\x1b[C", b"\x1b[D"
CTRL_A, CTRL_C, CTRL_D, CTRL_R, BACKSPACE = b"\x01", b"\x03", b"\x04", b"\x12", b"\x7f"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")


class Terminal:
    def __init__(self, folder, *options, columns=80, rows=24, words=("chat", "--seed", "1", "--max-tokens", "8"), **environment):
        self.folder, self.output = folder, b""
        home = {"HOME": str(folder), "TERM": "xterm", "LANG": "C.UTF-8", "PATH": os.environ["PATH"]}
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            try:
                self.terminal = 0  # its size is there before the program is
                self.resize(columns, rows)
                os.chdir(folder)
                os.execve(PROGRAM, [PROGRAM, *words, *options], {**home, **environment})
            finally:
                os._exit(127)

    def resize(self, columns, rows=24):
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, *keys):
        for key in keys:
            os.write(self.terminal, key if isinstance(key, bytes) else key.encode())

    def read(self, seconds):
        if not select.select([self.terminal], [], [], seconds)[0]:
            return False
        try:
            self.output += os.read(self.terminal, 65536)
        except OSError:  # the other side is closed
            return False
        return True

    def wait_for(self, text, since=0):
        """Until the terminal has shown this after the place `since`; gives the place behind it."""
        wanted, end = text.encode() if isinstance(text, str) else text, time.time() + LIMIT_S
        while (at := self.output.find(wanted, since)) < 0:
            if time.time() > end or (not self.read(0.2) and self.ended()):
                raise AssertionError(f"{wanted!r} was not shown; this was: {self.output[since:]!r}")
        return at + len(wanted)

    def prompt(self, since=0):
        return self.wait_for(b"> ", since)

    def start(self):
        return self.prompt(self.wait_for("/help lists the rest."))

    def say(self, *keys):
        """A message, and its answer until the next prompt."""
        place = len(self.output)
        self.send(*keys, "\r")
        place = self.wait_for("prompt token", place)
        return self.prompt(place)

    def saved(self, name="saved.json"):
        place = len(self.output)
        self.send(f"/save {name}\r")
        self.prompt(self.wait_for("messages written to", place))
        return json.loads((self.folder / name).read_text())["messages"]

    def said(self, name="saved.json"):
        return [message["content"] for message in self.saved(name) if message["role"] == "user"]

    def ended(self):
        if self.process > 0:
            process, status = os.waitpid(self.process, os.WNOHANG)
            if process:
                self.process, self.status = 0, os.waitstatus_to_exitcode(status)
        return self.process == 0

    def end(self):
        end = time.time() + LIMIT_S
        while not self.ended():
            if time.time() > end:
                raise AssertionError(f"it did not end; this was shown: {self.output[-500:]!r}")
            self.read(0.1)
        while self.read(0):
            pass
        return self.status

    def close(self):
        if self.process > 0:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
        os.close(self.terminal)

    def lines(self, since=0):
        return ESCAPES.sub("", self.output[since:].decode("utf-8", "replace")).replace("\r\n", "\n").split("\n")


class ChatAtATerminal(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def terminal(self, *options, **settings):
        terminal = Terminal(self.folder, *options, **settings)
        self.addCleanup(terminal.close)
        return terminal

    def history(self):
        return self.folder / ".local/state/fourfold/chat_history"

    def test_arrows_and_keys_edit_the_line(self):
        chat = self.terminal()
        chat.start()
        chat.say("Helo", LEFT, "l", CTRL_A, "> ")  # between the l and the o, then at the beginning
        chat.say("abc", LEFT, LEFT, BACKSPACE, RIGHT, "x")
        self.assertEqual(chat.said(), ["> Hello", "bxc"])

    def test_characters_of_several_bytes_and_columns(self):
        for language in ("C.UTF-8", "C"):  # whatever the locale, the model gets UTF-8
            with self.subTest(language):
                chat = self.terminal(LANG=language)
                chat.start()
                chat.say("漢字é", LEFT, LEFT, BACKSPACE, "日", "\N{GRINNING FACE}")
                self.assertEqual(chat.said(f"{language}.json"), ["日\N{GRINNING FACE}字é"])
                # Three wide characters and one that is not, behind the two columns of the prompt.
                self.assertIn(b"\xe5\xad\x97", chat.output)

    def test_a_paste_of_many_lines_is_one_message(self):
        chat = self.terminal()
        chat.start()
        self.assertIn(b"\x1b[?2004h", chat.output, "the terminal is asked to mark pastes")
        chat.say("See: ", b"\x1b[200~one\rtwo\r\tthree \xc3\xa9\x1b[201~", " end")
        self.assertEqual(chat.said(), ["See: one\ntwo\n\tthree é end"])
        chat.say("first", b"\x1b\r", "second")  # Alt-Enter
        self.assertEqual(chat.said("more.json")[1], "first\nsecond")
        chat.send("/exit\r")
        self.assertEqual(chat.end(), 0)
        self.assertIn(b"\x1b[?2004l", chat.output.rsplit(b"\x1b[?2004h", 1)[1], "and asked no more at the end")

    def test_a_paste_higher_than_the_window(self):
        chat = self.terminal(columns=30, rows=10)
        chat.start()
        text = "\n".join(f"row {i} of a long list of rows" for i in range(40))
        chat.say(b"\x1b[200~" + text.replace("\n", "\r").encode() + b"\x1b[201~")
        self.assertEqual(chat.said(), [text])

    def test_a_paste_beyond_the_limit_is_cut_and_said(self):
        chat = self.terminal()
        chat.start()
        text = b"\x1b[200~" + b"0123456789 \r" * 100_000 + b"\x1b[201~"
        sent, place = 0, len(chat.output)
        while sent < len(text):  # a terminal holds little, so what is drawn is read meanwhile
            sent += os.write(chat.terminal, text[sent:sent + 2048])
            while chat.read(0):
                pass
        place = chat.wait_for("the paste was cut after 1048576 characters", place)
        chat.send(CTRL_C)
        chat.send("/exit\r")
        self.assertEqual(chat.end(), 0)

    def test_a_signal_leaves_the_terminal_as_it_was(self):
        for ending in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            with self.subTest(ending):
                chat = self.terminal()
                before = None
                while before is None or before[3] & (termios.ECHO | termios.ICANON) == 0:
                    before = termios.tcgetattr(chat.terminal)
                chat.start()
                edited = termios.tcgetattr(chat.terminal)
                self.assertEqual(edited[3] & (termios.ECHO | termios.ICANON), 0, "the editor has it")
                place = len(chat.output)
                os.kill(chat.process, ending)
                self.assertEqual(chat.end(), -ending)
                self.assertIn(b"\x1b[?2004l", chat.output[place:])
                self.assertEqual(termios.tcgetattr(chat.terminal)[3], before[3])

    def test_history_is_kept_across_starts(self):
        first = self.terminal()
        first.start()
        first.say("an older question")
        first.say(b"\x1b[200~two\rlines\x1b[201~")
        first.send(CTRL_D)
        self.assertEqual(first.end(), 0)
        self.assertEqual(stat.S_IMODE(self.history().stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(self.history().parent.stat().st_mode), 0o700)
        second = self.terminal()
        second.start()
        second.say(UP)
        second.say(UP, UP, UP, DOWN, UP, LEFT, "!")  # what is repeated stands there once
        second.say(CTRL_R, "old")  # Enter takes what was found
        self.assertEqual(second.said(), ["two\nlines", "an older questio!n", "an older questio!n"])

    def test_history_is_bounded(self):
        self.history().parent.mkdir(parents=True)
        chat = self.terminal()
        chat.start()
        chat.say("kept")
        chat.send(b"\x1b[200~" + b"x" * 17000 + b"\x1b[201~", "\r")
        chat.prompt(chat.wait_for("the conversation has 170", len(chat.output) - 1))
        chat.send(CTRL_D)
        chat.end()
        self.assertIn("kept", self.history().read_text())
        self.assertNotIn("xxx", self.history().read_text())
        lines = self.history().read_text().splitlines()
        self.history().write_text("\n".join([lines[0]] + [f"line{i}" for i in range(3000)]) + "\n")
        chat = self.terminal()
        chat.start()
        chat.say("the newest")
        lines = self.history().read_text().splitlines()
        self.assertEqual(len(lines), 1001)  # with the line that says what it is
        self.assertEqual(lines[-2], "line2999")

    def test_history_may_be_left_out(self):
        for options, environment in (((), {"FOURFOLD_HISTORY": "off"}), (("--no-history",), {})):
            chat = self.terminal(*options, **environment)
            chat.start()
            chat.say("secret")
            chat.say(UP)  # within one start it is there
            self.assertEqual(chat.said(f"{len(options)}.json"), ["secret", "secret"])
            chat.send(CTRL_D)
            chat.end()
            self.assertFalse(self.history().exists())

    def test_a_file_that_is_no_history_is_left_alone(self):
        notes = self.folder / "notes.txt"
        notes.write_text("my notes\n")
        chat = self.terminal(FOURFOLD_HISTORY=str(notes))
        chat.start()
        self.assertIn(b"it is no history of fourfold chat", chat.output)
        chat.say("hello")
        self.assertEqual(notes.read_text(), "my notes\n")

    def test_two_chats_keep_both_histories(self):
        one, two = self.terminal(), self.terminal()
        one.start(), two.start()
        one.say("from one")
        two.say("from two")
        one.say("again one")
        self.assertEqual(self.history().read_text().splitlines()[1:],
                         [line.replace(" ", "\\040") for line in ("from one", "from two", "again one")])

    def test_answers_are_wrapped_between_words(self):
        words = ("chat", "--seed", "1", "--max-tokens", "120")
        for options, columns, wrapped in (((), 32, True), (("--no-wrap",), 32, False)):
            chat = self.terminal(*options, columns=columns, words=words)
            place = chat.start()
            end = chat.say("Tell me a story about a fox.")
            lines = chat.lines(place)
            answer = [m["content"] for m in chat.saved(f"{wrapped}.json") if m["role"] == "assistant"][0]
            self.assertGreater(len(answer), 3 * columns)
            shown = lines[1:next(i for i, line in enumerate(lines) if line.startswith("fourfold: "))]
            self.assertEqual(max(map(len, shown)) <= columns, wrapped, shown)
            self.assertEqual(" ".join(" ".join(shown).split()), " ".join(answer.split()))
            self.assertGreater(end, place)

    def test_commands(self):
        chat = self.terminal()
        place = chat.start()
        chat.send("/help\r")
        place = chat.wait_for("/save FILE", place)
        chat.send("/sav x\r")
        place = chat.wait_for("there is no command /sav; did you mean /save?", place)
        chat.send("/system\r")
        place = chat.wait_for("there is no system message", place)
        chat.send("/system Be brief.\r")
        place = chat.prompt(chat.wait_for("the system message is set", place))
        chat.say("Hello")
        self.assertEqual([m["role"] for m in chat.saved("a.json")], ["system", "user", "assistant"])
        place = len(chat.output)
        chat.send("/save a.json\r")
        place = chat.wait_for("there is such a file already", place)
        chat.send("/save\r")
        place = chat.wait_for("/save needs the name of a file", place)
        chat.send("/system -\r", "/clear\r")
        chat.prompt(chat.wait_for("no system message from now on", place))
        chat.say(" /not a command")
        self.assertEqual([m["content"] for m in chat.saved("b.json")][0], " /not a command")
        place = len(chat.output)
        chat.send("/save talk.md\r")
        chat.wait_for("2 messages written to talk.md", place)
        self.assertTrue((self.folder / "talk.md").read_text().startswith("# A conversation with storyteller\n\n## You\n"))
        chat.send("/exit\r")
        self.assertEqual(chat.end(), 0)

    def test_ctrl_c_and_ctrl_d(self):
        chat = self.terminal(words=("chat", "--seed", "1", "--max-tokens", "3000", "--logit-bias", "8183=-100,8185=-100"))
        place = chat.start()
        chat.send("never sent", CTRL_C)
        place = chat.prompt(chat.wait_for("Ctrl-C again, or Ctrl-D, ends the chat", place))
        chat.send("Tell me a long story.\r")
        place = chat.wait_for("\n", place + 20)
        time.sleep(0.3)
        chat.send(CTRL_C)
        chat.wait_for("prompt token", place)
        self.assertEqual(chat.said(), ["Tell me a long story."])
        chat.send(CTRL_C)
        chat.prompt(chat.wait_for("Ctrl-C again", len(chat.output) - 1))
        chat.send(CTRL_C)
        self.assertEqual(chat.end(), 0)
        chat = self.terminal()
        chat.start()
        chat.send(CTRL_D)
        self.assertEqual(chat.end(), 0)
        self.assertTrue(chat.output.endswith(b"\n"), "the shell's prompt has its own line")

    def test_a_stop_and_another_size_draw_the_line_anew(self):
        chat = self.terminal()
        place = chat.start()
        chat.send("half a li")
        place = chat.wait_for("half a li", place)
        os.kill(chat.process, signal.SIGSTOP)
        # What a shell does meanwhile: the terminal is set to echo and to lines.
        attributes = termios.tcgetattr(chat.terminal)
        attributes[3] |= termios.ICANON | termios.ECHO
        termios.tcsetattr(chat.terminal, termios.TCSANOW, attributes)
        os.kill(chat.process, signal.SIGCONT)
        place = chat.wait_for("half a li", place)
        self.assertFalse(termios.tcgetattr(chat.terminal)[3] & (termios.ICANON | termios.ECHO))
        chat.resize(60)
        os.kill(chat.process, signal.SIGWINCH)
        chat.say("ne", LEFT, LEFT, LEFT, "!")
        self.assertEqual(chat.said(), ["half a l!ine"])

    def test_terminals_without_styles(self):
        chat = self.terminal("--thinking", "--max-tokens", "40", words=("chat", "--seed", "1"), NO_COLOR="1")
        chat.start()
        chat.say("What are you?")
        self.assertNotIn(b"\x1b[2m", chat.output)
        self.assertIn(b"[thinking] ", chat.output)
        chat = self.terminal("--thinking", "--max-tokens", "40", words=("chat", "--seed", "1"))
        chat.start()
        chat.say("What are you?")
        self.assertIn(b"\x1b[2m", chat.output)
        dumb = self.terminal(TERM="dumb")
        dumb.start()
        dumb.say("Hello")
        self.assertEqual(dumb.said(), ["Hello"])
        self.assertNotIn(b"\x1b", dumb.output)

    def test_pipes_have_no_editor_and_no_history(self):
        reader, writer = os.pipe()
        os.write(writer, b"Hello\n/usr is a folder\n/save piped.json\n")
        os.close(writer)
        null = os.open(os.devnull, os.O_WRONLY)
        process = os.fork()
        if process == 0:
            os.dup2(reader, 0), os.dup2(null, 1), os.dup2(null, 2)
            os.chdir(self.folder)
            os.execve(PROGRAM, [PROGRAM, "chat", "--seed", "1", "--max-tokens", "4"], {"HOME": str(self.folder), "TERM": "xterm"})
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), 0)
        os.close(reader), os.close(null)
        messages = json.loads((self.folder / "piped.json").read_text())["messages"]
        self.assertEqual([m["content"] for m in messages if m["role"] == "user"], ["Hello", "/usr is a folder"])
        self.assertFalse(self.history().exists())


if __name__ == "__main__":
    PROGRAM = os.path.realpath(sys.argv.pop(1))
    unittest.main()
