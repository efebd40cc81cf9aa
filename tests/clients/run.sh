#!/usr/bin/env bash
# The official clients against our server: tests/clients/run.sh PROGRAM [--write]. Makes a virtual environment of its own
# beside the program (packages from PyPI), serves models/storyteller under a template that knows tools, asks everything
# through openai, anthropic and curl, and prints the table; --write puts it into docs/serving.md.
set -euo pipefail

program=$(realpath "${1:?usage: tests/clients/run.sh PROGRAM [--write]}")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
venv=$(dirname "$program")/clients-venv
if [[ ! -x $venv/bin/python ]] || ! "$venv/bin/python" -c 'import anthropic, openai' 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet 'openai>=2' 'anthropic>=0.70'
fi
exec "$venv/bin/python" "$root/tests/clients/clients.py" --program "$program" "${@:2}"
