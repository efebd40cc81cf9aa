"""Fourfold as a worker of NVIDIA Dynamo: `python -m fourfold_dynamo MODEL` (docs/clusters.md).

The engine runs in this process, on libfourfold_engine. Dynamo's frontend tokenizes and reads the answer's tokens; ids come
in, ids go out.
"""

from .engine import FourfoldEngine

__all__ = ["FourfoldEngine"]
