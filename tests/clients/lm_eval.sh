#!/usr/bin/env bash
# lm-eval, the package itself, against our server: tests/clients/lm_eval.sh PROGRAM [RESULT]. Makes a virtual environment of
# its own beside the program (PyPI, some 700 MB), serves models/storyteller, and compares; RESULT is the dated file to write.
set -euo pipefail

program=$(realpath "${1:?usage: tests/clients/lm_eval.sh PROGRAM [RESULT]}")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
venv=$(dirname "$program")/lm-eval-venv
wanted=0.4.13
if ! "$venv/bin/python" -c "import importlib.metadata as m; assert m.version('lm_eval') == '$wanted'" 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet "lm_eval[api]==$wanted"
fi
exec "$venv/bin/python" "$root/tests/clients/lm_eval_test.py" --program "$program" ${2:+--result "$2"}
