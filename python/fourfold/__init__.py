"""Fourfold for Python: NVFP4 mixture-of-experts models on CPUs and on GPUs with little shared memory.

    import fourfold

    llm = fourfold.LLM()                                  # Storyteller, which comes with the package
    print(llm.chat("Tell me a story about a fox.").text)

    for piece in llm.stream("Once upon a time", max_tokens=80):
        print(piece, end="", flush=True)

    with fourfold.serve(port=0) as server:                # an OpenAI-compatible server, until the block ends
        print(server.url)

The engine is libfourfold_engine, loaded into this process; nothing but Python's standard library is needed.
"""

from ._library import FourfoldError, version
from .llm import LLM, Answer, IdsAnswer, Messages, Stream
from .server import Server, serve

__version__ = version()
__all__ = ["LLM", "Answer", "FourfoldError", "IdsAnswer", "Messages", "Server", "Stream", "__version__", "serve"]
