"""Claude Code, the program itself, in which every turn is a process of its own that continues the
conversation, as scripts use it; and the Claude Agent SDK, which keeps it running.
"""
import json
import pathlib

from served import Served, check, clean_environment
from turns import COMMAND, Turns, run, script

OWN_SERVERS = True
CONTEXT = "65536"


def claude_program():
    import claude_agent_sdk
    return pathlib.Path(claude_agent_sdk.__file__).parent / "_bundled/claude"


def claude_environment(served):
    home = served.work / "home"
    home.mkdir(exist_ok=True)
    return clean_environment(home, ANTHROPIC_BASE_URL=served.url, ANTHROPIC_AUTH_TOKEN="unused",
                             ANTHROPIC_MODEL="scripted", ANTHROPIC_DEFAULT_HAIKU_MODEL="scripted",
                             CLAUDE_CODE_MAX_CONTEXT_TOKENS=CONTEXT, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1")


def serve(program):
    return Served(program, script("Bash", {"command": COMMAND, "description": "Write a line"}),
                  options=("--max-context", CONTEXT))


def claude_code(program):
    """Claude Code: `claude -p`, three turns with a Bash call each"""
    with serve(program) as served:
        turns = Turns(served)
        for turn in range(3):
            more = ["--continue"] if turn else []
            out = json.loads(run([claude_program(), "-p", "Make a line in the file.", "--output-format", "json",
                                  "--allowed-tools", "Bash", *more], turns.folder, claude_environment(served)))
            check(not out["is_error"] and out["num_turns"] == 2, f"it says {out}")
            turns.done(out["result"])
        version = run([claude_program(), "--version"], turns.folder, claude_environment(served)).strip()
        return f"{version}; {turns.report()}"


def claude_sdk(program):
    """Claude Agent SDK (claude-agent-sdk): `ClaudeSDKClient`, three turns with a Bash call each"""
    import asyncio

    import claude_agent_sdk as sdk
    with serve(program) as served:
        turns = Turns(served)

        async def talk():
            options = sdk.ClaudeAgentOptions(cwd=turns.folder, env=claude_environment(served), allowed_tools=["Bash"],
                                             model="scripted")
            async with sdk.ClaudeSDKClient(options) as client:
                for _ in range(3):
                    await client.query("Make a line in the file.")
                    ends = [message async for message in client.receive_response()
                            if isinstance(message, sdk.ResultMessage)]
                    check(len(ends) == 1 and not ends[0].is_error, f"it says {ends}")
                    turns.done(ends[0].result)
        asyncio.run(talk())
        return turns.report()


ROWS = [claude_code, claude_sdk]
