"""Codex, the program itself. Every turn is a process of its own that continues the conversation, as scripts
use it.
"""
import json
import pathlib

from served import Served, check, clean_environment
from turns import COMMAND, Turns, run, script

OWN_SERVERS = True


def codex(program):
    """Codex: `codex exec`, three turns with an exec_command call each"""
    import codex_cli_bin
    binary = pathlib.Path(codex_cli_bin.__file__).parent / "bin/codex"
    with Served(program, script("exec_command", {"cmd": COMMAND}), options=("--max-context", "65536")) as served:
        home = served.work / "home"
        (home / ".codex").mkdir(parents=True)
        (home / ".codex/config.toml").write_text(
            'model = "scripted"\nmodel_provider = "fourfold"\nmodel_context_window = 65536\n'
            '[model_providers.fourfold]\nname = "Fourfold"\nbase_url = "' + served.url + '/v1"\n')
        turns = Turns(served)
        for turn in range(3):
            how = ["resume", "--last"] if turn else []
            out = run([binary, "exec", *how, "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json",
                       "Make a line in the file."], turns.folder, clean_environment(home))
            items = [event["item"] for event in map(json.loads, out.splitlines()) if event["type"] == "item.completed"]
            commands = [item for item in items if item["type"] == "command_execution"]
            check(len(commands) == 1 and commands[0]["exit_code"] == 0, f"commands were {commands}")
            turns.done([item["text"] for item in items if item["type"] == "agent_message"][-1])
        version = run([binary, "--version"], turns.folder, clean_environment(home)).strip()
        return f"{version}; {turns.report()}"


ROWS = [codex]
