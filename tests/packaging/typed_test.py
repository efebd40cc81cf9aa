"""The module's types, by mypy --strict, and a real pydantic model as a schema: typed_test.py SOURCE FOLDER. The packages come
from PyPI into FOLDER, as those of tests/clients do; ends with 77 (skipped) where it cannot be reached."""
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(SOURCE / "tests/clients"))
import run  # noqa: E402

RIGHT = """
import asyncio
import fourfold
from pydantic import BaseModel

class Weather(BaseModel):
    rain: bool

def main() -> None:
    llm = fourfold.LLM(threads=1)
    answer: fourfold.Answer = llm.chat("Is it raining?", schema=Weather, seed=1, max_tokens=200)
    assert isinstance(answer.parsed, Weather), answer
    many: list[fourfold.Answer] = llm.generate(["a", "b"], max_tokens=2)
    pieces: list[str] = list(llm.stream("Once", max_tokens=2))

    async def ask() -> str:
        return (await llm.achat("Hello", max_tokens=2)).text + "".join([piece async for piece in llm.astream("x", max_tokens=2)])

    assert asyncio.run(ask()) and len(many) == 2 and pieces
    llm.close()

main()
"""
WRONG = """
import fourfold
text: int = fourfold.LLM().chat("Hello").text
fourfold.LLM(bakend="cpu")
"""


def main():
    python = run.environment_or_skip(pathlib.Path(sys.argv[2]), "typed")
    environment = {**os.environ, "PYTHONPATH": str(SOURCE / "python"), "MYPYPATH": str(SOURCE / "python")}
    with tempfile.TemporaryDirectory() as place:
        def mypy(*words):
            return subprocess.run([str(python), "-m", "mypy", "--strict", "--cache-dir", place + "/cache", *words], text=True,
                                  capture_output=True, env=environment, cwd=place)

        right, wrong = pathlib.Path(place, "right.py"), pathlib.Path(place, "wrong.py")
        right.write_text(RIGHT)
        wrong.write_text(WRONG)
        ours = mypy("-p", "fourfold")
        assert ours.returncode == 0, ours.stdout
        assert mypy(str(right)).returncode == 0, mypy(str(right)).stdout
        found = mypy(str(wrong)).stdout
        assert found.count("error:") == 2 and "bakend" in found, found
        done = subprocess.run([str(python), str(right)], env=environment, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
    print("typed: mypy --strict and pydantic are content")
    return 0


if __name__ == "__main__":
    sys.exit(main())
