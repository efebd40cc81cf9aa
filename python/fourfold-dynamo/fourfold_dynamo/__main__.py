"""python -m fourfold_dynamo MODEL [--backend cuda] [--discovery-backend file] ..."""

from dynamo.common.backend.run import run

from .engine import FourfoldEngine


def main() -> None:
    run(FourfoldEngine)


if __name__ == "__main__":
    main()
