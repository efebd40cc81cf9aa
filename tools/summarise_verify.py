"""Shortens a report of `fourfold verify --report` to what is kept in bench/results/: a line a row and operation
(its proofs, the largest share of a bound, the verdict) instead of one for every proof.

    summarise_verify.py REPORT      rewrites the file
"""
import json
import pathlib
import sys


def summary(report):
    rows = {}
    for proof in report["rows"]:
        key = (proof["kernel"], proof["row"], proof["op"], proof["machine"])
        share = proof["max_error"] / proof["bound"] if proof["bound"] > 0 else 0.0
        row = rows.setdefault(key, {**dict(zip(("kernel", "row", "op", "machine"), key)), "proofs": 0, "compared": 0,
                                    "bits_exact": proof["bits_exact"], "worst_share_of_bound": 0.0, "verdict": "pass"})
        row["proofs"] += 1
        row["bits_exact"] = row["bits_exact"] and proof["bits_exact"]
        row["compared"] += proof["compared"]
        row["worst_share_of_bound"] = round(max(row["worst_share_of_bound"], share), 3)
        if proof["verdict"] != "pass":  # as it was found: shape, seed, numbers
            row.update(verdict=proof["verdict"], worst=proof)
    comparisons = report.pop("comparisons", [])
    report["comparisons"] = {"cases": len(comparisons), "bytes": sum(c["bytes"] for c in comparisons),
                             "different": sum(c["different"] for c in comparisons)}
    report["rows"] = list(rows.values())
    return report


def text_of(report):
    """One row a line: a change of one shows as one."""
    rows = report.pop("rows")
    head = json.dumps(report, indent=1)[:-2]
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    return f'{head},\n "rows": [\n{lines}\n ]\n}}\n'


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 64
    path = pathlib.Path(arguments[0])
    report = json.loads(path.read_text())
    if report["rows"] and "proofs" in report["rows"][0]:
        print(f"{path}: is a summary already")
        return 0
    path.write_text(text_of(summary(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
