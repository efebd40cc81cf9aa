"""Agent frameworks against a scripted model: each runs its own loop, calls the tool, sends the result back
and ends with the words of the script, three turns long where it keeps a conversation. One function a row: its
first line says what it shows.
"""
import asyncio
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from served import WEATHER, WEATHER_SAYS, check

os.environ.update(OPENAI_API_KEY="unused", ANTHROPIC_API_KEY="unused", OPENAI_AGENTS_DISABLE_TRACING="1",
                  LANGSMITH_TRACING="false")
ASKED = []  # (city, days) of every call of a tool


def weather(city: str, days: int) -> str:
    """The weather of a city.

    Args:
        city: the name of the city
        days: for how many days
    """
    ASKED.append((city, days))
    return "sunny"


def check_turns(answers, turns=3):
    """Each turn called the tool once, with the script's arguments, and ended with its words."""
    check(list(answers) == [WEATHER_SAYS] * turns, f"answers are {answers}")
    check(ASKED == [("Paris", 3)] * turns, f"calls were {ASKED}")
    ASKED.clear()


def langchain_turns(model):
    import langchain.agents
    agent = langchain.agents.create_agent(model, tools=[weather])
    messages, answers = [], []
    for _ in range(3):
        messages = agent.invoke({"messages": [*messages, {"role": "user", "content": "The weather?"}]})["messages"]
        answers.append(messages[-1].text)
    check_turns(answers)
    pieces = [piece for piece, _ in agent.stream({"messages": [*messages, {"role": "user", "content": "Again?"}]},
                                                 stream_mode="messages")]
    check(len(pieces) > 5 and ASKED == [("Paris", 3)], "streams")
    ASKED.clear()


def langchain_openai_chat(url):
    """LangChain (langchain-openai, chat completions): an agent of three turns, and streamed"""
    import langchain_openai
    langchain_turns(langchain_openai.ChatOpenAI(base_url=url + "/v1", model="scripted"))


def langchain_openai_responses(url):
    """LangChain (langchain-openai, responses): an agent of three turns, and streamed"""
    import langchain_openai
    langchain_turns(langchain_openai.ChatOpenAI(base_url=url + "/v1", model="scripted", use_responses_api=True))


def langchain_anthropic_messages(url):
    """LangChain (langchain-anthropic): an agent of three turns, and streamed"""
    import langchain_anthropic
    langchain_turns(langchain_anthropic.ChatAnthropic(base_url=url, model="scripted"))


def openai_agents(url, kind):
    import agents
    import openai
    client = openai.AsyncOpenAI(base_url=url + "/v1")
    agent = agents.Agent(name="clerk", instructions="Help.", tools=[agents.function_tool(weather)],
                         model=getattr(agents, kind)(model="scripted", openai_client=client))
    session = agents.SQLiteSession("three turns")

    async def turns():
        answers = [(await agents.Runner.run(agent, "The weather?", session=session)).final_output for _ in range(2)]
        streamed = agents.Runner.run_streamed(agent, "The weather?", session=session)
        pieces = [event async for event in streamed.stream_events() if event.type == "raw_response_event"]
        check(len(pieces) > 10, "streams")
        return [*answers, streamed.final_output]
    check_turns(asyncio.run(turns()))


def openai_agents_chat(url):
    """OpenAI Agents SDK (openai-agents, chat completions): three turns with a session, one streamed"""
    openai_agents(url, "OpenAIChatCompletionsModel")


def openai_agents_responses(url):
    """OpenAI Agents SDK (openai-agents, responses): three turns with a session, one streamed"""
    openai_agents(url, "OpenAIResponsesModel")


def pydantic_turns(model):
    import pydantic_ai
    agent = pydantic_ai.Agent(model, tools=[weather])
    history, answers = [], []
    for _ in range(2):
        done = agent.run_sync("The weather?", message_history=history)
        history = done.all_messages()
        answers.append(done.output)

    async def streamed():
        async with agent.run_stream("The weather?", message_history=history) as stream:
            return await stream.get_output()
    check_turns([*answers, asyncio.run(streamed())])


def pydantic_ai_chat(url):
    """Pydantic AI (pydantic-ai-slim, chat completions): three turns, one streamed"""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    pydantic_turns(OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=url + "/v1")))


def pydantic_ai_responses(url):
    """Pydantic AI (pydantic-ai-slim, responses): three turns, one streamed"""
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
    pydantic_turns(OpenAIResponsesModel("scripted", provider=OpenAIProvider(base_url=url + "/v1")))


def instructor_tools(url):
    """instructor: a pydantic model by tool call, by JSON schema, and streamed in parts"""
    import instructor
    import openai
    import pydantic

    class weather(pydantic.BaseModel):  # the name of the tool that is called
        city: str = pydantic.Field(max_length=12)  # masks alone make the schema's answer: it must come to an end
        days: int = pydantic.Field(ge=1, le=9)
    client = openai.OpenAI(base_url=url + "/v1")
    question = {"model": "scripted", "response_model": weather, "messages": [{"role": "user", "content": "The weather?"}],
                "max_tokens": 200}
    tools = instructor.from_openai(client, mode=instructor.Mode.TOOLS)
    made = tools.chat.completions.create(**question)
    check((made.city, made.days) == ("Paris", 3), f"by a tool: {made}")
    parts = list(tools.chat.completions.create_partial(**question))
    check((parts[-1].city, parts[-1].days) == ("Paris", 3), "in parts")
    forms = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
    check(isinstance(forms.chat.completions.create(**question), weather), "by a schema")


# A call is forced, for which the server writes this template's form.
instructor_tools.served = {"script": WEATHER, "template": "tool_xml"}


def anthropic_tool_runner(url):
    """anthropic: `beta.messages.tool_runner`, whole and streamed"""
    import anthropic
    client = anthropic.Anthropic(base_url=url, max_retries=0)
    question = {"model": "scripted", "max_tokens": 400, "messages": [{"role": "user", "content": "The weather?"}],
                "tools": [anthropic.beta_tool(weather)]}
    final = client.beta.messages.tool_runner(**question).until_done()
    streamed = [stream.get_final_message() for stream in client.beta.messages.tool_runner(**question, stream=True)]
    check_turns([final.content[-1].text, streamed[-1].content[-1].text], turns=2)


def llm_command(url):
    """llm (the command line tool): a tool, and the conversation continued"""
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder)
        (home / "extra-openai-models.yaml").write_text(json.dumps([{
            "model_id": "scripted", "model_name": "scripted", "api_base": url + "/v1", "supports_tools": True,
            "can_stream": True}]))
        program = pathlib.Path(sys.executable).parent / "llm"
        environment = {**os.environ, "LLM_USER_PATH": folder}

        def run(*words):
            return subprocess.run([program, *words], env=environment, capture_output=True, text=True, timeout=120,
                                  stdin=subprocess.DEVNULL)
        tool = "def weather(city: str, days: int) -> str:\n    return f'sunny in {city} for {days}'\n"
        for more in ((), ("--continue",)):
            done = run("-m", "scripted", "--functions", tool, "--td", *more, "The weather?")
            check(done.stdout.strip().endswith(WEATHER_SAYS) and "sunny in Paris for 3" in done.stderr,
                  done.stdout + done.stderr)


def smolagents_agents(url):
    """smolagents: a ToolCallingAgent that answers by a call, and a CodeAgent whose code calls the tool"""
    import smolagents
    model = smolagents.OpenAIServerModel("scripted", api_base=url + "/v1", api_key="unused")
    # It tells of earlier calls as text, in words of its own, so that a script can have one answer only.
    for kind, calls in ((smolagents.ToolCallingAgent, []), (smolagents.CodeAgent, [("Paris", 3)])):
        answer = kind(tools=[smolagents.tool(weather)], model=model, max_steps=3, verbosity_level=0).run("The weather?")
        check(answer == "sunny as asked" and ASKED == calls, f"{kind.__name__}: {answer}, {ASKED}")
        ASKED.clear()


smolagents_agents.served = {"template": "tool_xml", "script": {
    "with_tools": [{"calls": [{"name": "final_answer", "arguments": {"answer": "sunny as asked"}}]}],
    "without_tools": [{"text": "I ask for it.\n<code>\nfinal_answer(weather('Paris', 3) + ' as asked')\n</code>"}]}}

ROWS = [langchain_openai_chat, langchain_openai_responses, langchain_anthropic_messages, openai_agents_chat,
        openai_agents_responses, pydantic_ai_chat, pydantic_ai_responses, instructor_tools,
        anthropic_tool_runner, llm_command, smolagents_agents]
