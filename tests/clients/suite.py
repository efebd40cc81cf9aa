"""Runs the rows of one suite against a scripted model: suite.py SUITE FOURFOLD RESULTS. Called by run.py with
the suite's own Python. Rows are functions; what goes wrong in one does not stop the others. RESULTS gets a
list of {row, result, seconds, more}.

A row gets the address of a server whose model calls `weather`, or follows the row's own script and chat
template; in a suite with OWN_SERVERS it gets the program instead. What it returns is more to be told about
it. A suite with run_suite() runs its rows itself.
"""
import importlib
import inspect
import json
import pathlib
import sys
import time
import traceback

from served import WEATHER, Served


def run_row(row, argument):
    name = inspect.getdoc(row).splitlines()[0]
    begun = time.time()
    more = None
    try:
        more = row(argument)
        result = "yes"
    except BaseException as error:  # every client has its own, and some of them end the program
        if isinstance(error, KeyboardInterrupt):
            raise
        traceback.print_exc()
        result = f"NO: {type(error).__name__}: {str(error)[:300]}"
    seconds = round(time.time() - begun, 1)
    print(f"{seconds:7.1f} s  {name}: {result}{'; ' + more if more else ''}", flush=True)
    return {"row": name, "result": result, "seconds": seconds, "more": more}


def run_rows(module, program):
    if hasattr(module, "run_suite"):
        return module.run_suite(program, run_row)
    if getattr(module, "OWN_SERVERS", False):
        return [run_row(row, program) for row in module.ROWS]
    results = []
    with Served(program, WEATHER) as served:
        for row in module.ROWS:
            if hasattr(row, "served"):
                with Served(program, **row.served) as other:
                    results.append(run_row(row, other.url))
            else:
                results.append(run_row(row, served.url))
    return results


def main():
    suite, program, out = sys.argv[1:]
    results = run_rows(importlib.import_module(suite), program)
    pathlib.Path(out).write_text(json.dumps(results, indent=1))
    return 0 if all(result["result"] == "yes" for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
