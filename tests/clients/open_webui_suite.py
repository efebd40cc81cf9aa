"""Open WebUI, the program itself: a chat of three turns through its own API, with a tool of its own that it
runs.
"""
import pathlib
import subprocess
import sys
import tempfile
import time

from served import WEATHER_SAYS, ask, check, clean_environment, free_port, stop, wait_for

TOOL = '''class Tools:
    def weather(self, city: str, days: int) -> str:
        """
        The weather of a city.
        :param city: the name of the city
        :param days: for how many days
        """
        return f"sunny in {city} for {days} days"
'''


class WebUi:
    def __init__(self, url, home):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = open(home / "log", "w+")
        environment = clean_environment(
            home, OPENAI_API_BASE_URL=url + "/v1", OPENAI_API_KEY="unused", ENABLE_OLLAMA_API="False", WEBUI_AUTH="False",
            WEBUI_SECRET_KEY="unused", DATA_DIR=home / "data", OFFLINE_MODE="True", RAG_EMBEDDING_ENGINE="openai",
            ENABLE_TITLE_GENERATION="True", ANONYMIZED_TELEMETRY="false", DO_NOT_TRACK="true", SCARF_NO_ANALYTICS="true")
        self.process = subprocess.Popen(
            [pathlib.Path(sys.executable).parent / "open-webui", "serve", "--host", "127.0.0.1", "--port", str(port)],
            env=environment, stdout=self.log, stderr=self.log)

    def start(self):
        wait_for(self.url + "/health", self.process, 400)
        token = ask(self.url + "/api/v1/auths/signin", {"email": "", "password": ""})["token"]
        self.headers = {"Authorization": f"Bearer {token}"}

    def ask(self, path, body=None):
        return ask(self.url + path, body, self.headers)

    def stop(self):
        stop(self.process, 60)
        self.log.close()


def say(ui, chat, turn, history, **more):
    """One turn as the page has it: the answer is written into the stored chat, whence it is read."""
    user = {"id": f"user-{turn}", "role": "user", "content": "The weather?", "models": ["scripted"],
            "parentId": history[-1]["id"] if history else None, "childrenIds": [f"answer-{turn}"], "timestamp": 0}
    answer = {"id": f"answer-{turn}", "role": "assistant", "content": "", "model": "scripted", "parentId": user["id"],
              "childrenIds": [], "timestamp": 0}
    history += [user, answer]
    stored = {"messages": {message["id"]: message for message in history}, "currentId": answer["id"]}
    ui.ask(f"/api/v1/chats/{chat}", {"chat": {"models": ["scripted"], "history": stored}})
    ui.ask("/api/chat/completions", {
        "model": "scripted", "stream": True, "chat_id": chat, "id": answer["id"], "session_id": "session", "parent_id": user["id"],
        "messages": [{"role": message["role"], "content": message["content"]} for message in history[:-1]], **more})
    for _ in range(300):
        found = ui.ask(f"/api/v1/chats/{chat}")["chat"]["history"]["messages"][answer["id"]]
        if found.get("done"):
            answer.update(found)
            return found
        time.sleep(0.2)
    raise AssertionError(f"turn {turn} did not end: {found}")


def open_webui(url):
    """Open WebUI: the list of models, three turns of a chat with a tool it runs"""
    with tempfile.TemporaryDirectory() as home:
        ui = WebUi(url, pathlib.Path(home))
        try:
            ui.start()
            models = [model["id"] for model in ui.ask("/api/models")["data"]]
            check("scripted" in models, f"models are {models}")
            ui.ask("/api/v1/tools/create", {"id": "weather", "name": "Weather", "content": TOOL,
                                            "meta": {"description": "The weather."}})
            chat = ui.ask("/api/v1/chats/new", {"chat": {"models": ["scripted"]}})["id"]
            history = []
            for turn in range(3):
                found = say(ui, chat, turn, history, tool_ids=["weather"], params={"function_calling": "native"})
                check(WEATHER_SAYS in found["content"] and "sunny in Paris for 3 days" in str(found),
                      f"turn {turn} is {found}")
        except BaseException:
            ui.log.flush()
            print((pathlib.Path(home) / "log").read_text()[-3000:])
            raise
        finally:
            ui.stop()


ROWS = [open_webui]
