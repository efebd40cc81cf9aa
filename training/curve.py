"""The loss curve of a run as SVG.

    curve.py LOG.csv OUT.svg
"""
import csv
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 760, 400, 60, 40, 20, 20
SERIES = (("loss", "#1f5fa8", "loss"), ("mtp_loss", "#b0641e", "MTP layer"), ("held_out", "#2a7f3f", "held-out books"))


def main(log, out):
    rows = list(csv.DictReader(open(log, newline="")))
    most = max(float(row["tokens"]) for row in rows)
    values = [float(row[name]) for row in rows for name, _, _ in SERIES if row[name]]
    low, high = int(min(values) * 2) / 2, min(7.0, max(values))

    def place(tokens, value):
        x = LEFT + (WIDTH - LEFT - RIGHT) * tokens / most
        y = TOP + (HEIGHT - TOP - BOTTOM) * (high - min(value, high)) / (high - low)
        return f"{x:.1f},{y:.1f}"

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    tick = low
    while tick <= high:
        x, y = place(0, tick).split(",")
        parts.append(f'<path d="M{x} {y}H{WIDTH - RIGHT}" stroke="#dddddd"/>'
                     f'<text x="{LEFT - 8}" y="{float(y) + 4:.1f}" text-anchor="end">{tick:g}</text>')
        tick += 0.5
    for i in range(6):
        x = place(most * i / 5, low).split(",")[0]
        parts.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{most * i / 5e6:.0f}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">million tokens</text>')
    for i, (name, colour, label) in enumerate(SERIES):
        points = " ".join(place(float(row["tokens"]), float(row[name])) for row in rows if row[name])
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
                     f'<text x="{WIDTH - RIGHT - 110}" y="{TOP + 16 + 16 * i}" fill="{colour}">{label}</text>')
    open(out, "w").write("\n".join(parts + ["</svg>"]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
