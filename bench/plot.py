#!/usr/bin/env python3
"""Draws the sm_90a kernels' speed from a table of bench/sm90_bench.py as an SVG for the README.

    python3 bench/plot.py                        # bench/results/sm90-dense.json -> docs/sm90-speed.svg
    python3 bench/plot.py RESULTS.json -o F.svg  # RESULTS is what bench/sm90_bench.py --json wrote
    python3 bench/plot.py --check                # exit code 1 if docs/sm90-speed.svg is not of that table

Standard library only; the same table gives the same bytes.
"""
import argparse
import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS, OUTPUT = ROOT / "bench/results/sm90-dense.json", ROOT / "docs/sm90-speed.svg"
LENGTHS = ("1k", "2k", "4k", "8k", "16k")
INK, FAINT, BEST = "#24292f", "#d0d7de", "#8c959f"
COLOURS = {"bf16": "#1a6fb4", "fp16": "#d1681c"}
WIDTH, MARGIN, GAP, PANEL_H = 960, 56, 34, 150
TOP = 84


def read(text):
    """(what it was measured on, {cell: {"cudnn", "fa3", "flex", "best": ratio or None}})."""
    record = json.loads(text)
    cells = {}
    for cell in record["cells"]:
        name = next(iter(cell["ratio"]))
        ratios = cell["ratio"][name]
        cells[cell["name"]] = {"cudnn": ratios.get("cudnn"), "fa3": ratios.get("fa3"),
                               "flex": ratios.get("flex"), "best": cell.get("of_best", {}).get(name)}
    return f"One {record['gpu']}, {record['date']}, CUDA {record['cuda']}", cells


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class Drawing:
    def __init__(self, height):
        self.height = height
        self.parts = []

    def text(self, x, y, text, size=12, anchor="start", colour=INK, weight="normal"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
                          f'fill="{colour}" font-weight="{weight}">{escape(text)}</text>')

    def line(self, x1, y1, x2, y2, colour=FAINT, width=1.0, dash=""):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
                          f'stroke="{colour}" stroke-width="{width}"{dashes}/>')

    def path(self, points, colour, width=2.0, dash="", dots=True):
        where = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<polyline points="{where}" fill="none" stroke="{colour}" '
                          f'stroke-width="{width}"{dashes}/>')
        if dots:
            self.parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
                           for x, y in points]

    def box(self, x, y, width, height, colour):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                          f'height="{height:.1f}" fill="{colour}"/>')

    def svg(self, description):
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self.height}" '
            f'viewBox="0 0 {WIDTH} {self.height}" '
            f'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">',
            f"<desc>{escape(description)}</desc>",
            f'<rect width="{WIDTH}" height="{self.height}" fill="#ffffff"/>',
            *self.parts, "</svg>", ""])


def panel(drawing, x, y, width, title, low, top):
    """The frame of a panel whose values run from `low` to `top`; returns value -> y."""

    def place(value):
        return y + PANEL_H - (value - low) / (top - low) * PANEL_H

    drawing.text(x, y - 8, title, 13, weight="600")
    tick = low
    while tick <= top + 1e-9:
        whole = abs(tick - 1) < 1e-9
        drawing.line(x, place(tick), x + width, place(tick), INK if whole else FAINT,
                     1.2 if whole else 0.8)
        drawing.text(x - 6, place(tick) + 4, f"{tick:.1f}", 10, "end", "#57606a")
        tick += 0.1
    return place


def lengths_panel(drawing, cells, x, y, width, depth, mask, low, top):
    title = f"depth {depth}, {'causal' if mask == 'causal' else 'no mask'}"
    place = panel(drawing, x, y, width, title, low, top)
    at = {length: x + width * (i + 0.5) / len(LENGTHS) for i, length in enumerate(LENGTHS)}
    for length in LENGTHS:
        drawing.text(at[length], y + PANEL_H + 14, length, 10, "middle", "#57606a")

    def points(dtype, value):
        found = [(length, cells.get(f"{dtype}.{depth}.{mask}.{length}")) for length in LENGTHS]
        return [(at[length], place(value(cell))) for length, cell in found
                if cell and cell["cudnn"] and cell["best"]]

    # NOTE: the recorded ratio of FlashAttention-3 to cuDNN, and 1 where cuDNN is faster.
    drawing.path(points("bf16", lambda c: c["cudnn"] / c["best"]), BEST, 1.6, "5 3", dots=False)
    for dtype in ("fp16", "bf16"):
        drawing.path(points(dtype, lambda c: c["cudnn"]), COLOURS[dtype])


def bars_panel(drawing, x, y, width, title, bars):
    """Horizontal bars (label, value, the other's value or None), the value written behind each."""
    drawing.text(x, y - 8, title, 13, weight="600")
    most = max([1.0] + [max(value, best or 0) for _, value, best in bars])
    label, room = 84, width - 84 - 44
    step = min(30.0, PANEL_H / max(1, len(bars)))
    for i, (name, value, best) in enumerate(bars):
        top = y + 6 + i * step
        drawing.text(x + label - 8, top + step / 2 + 1, name, 11, "end")
        drawing.box(x + label, top, room * value / most, step - 12, COLOURS["bf16"])
        end = x + label + room * max(value, best or 0) / most
        drawing.text(end + 6, top + step / 2 + 1, f"{value:.2f}", 11)
        if best:
            at = x + label + room * best / most
            drawing.line(at, top - 3, at, top + step - 9, BEST, 2.2)
    one = x + label + room / most
    drawing.line(one, y, one, y + len(bars) * step, INK, 1.2)


def draw(heading, cells, source):
    depths = [d for d in (64, 128, 256) if any(f".{d}." in name for name in cells)]
    columns = max(1, len(depths))
    width = (WIDTH - MARGIN - 16 - (columns - 1) * (GAP + 8)) / columns
    ratios = [c["cudnn"] for c in cells.values() if c["cudnn"] and c["best"]]
    ratios += [c["cudnn"] / c["best"] for c in cells.values() if c["cudnn"] and c["best"]]
    low = min(0.8, math.floor(min(ratios, default=1) * 10) / 10)
    top = max(1.3, math.ceil(max(ratios, default=1) * 10) / 10)
    pitch = PANEL_H + 62
    drawing = Drawing(TOP + 3 * pitch - 52)
    drawing.text(MARGIN - 36, 26, "Forward attention on sm_90a: times cuDNN's speed", 17, weight="600")
    drawing.text(MARGIN - 36, 45, f"{heading}; ratios of times measured in turn in one process", 11,
                 colour="#57606a")
    at = WIDTH - 440
    for name, colour, dash in (("attnjit bf16", COLOURS["bf16"], ""),
                               ("attnjit fp16", COLOURS["fp16"], ""),
                               ("better of cuDNN and FA3", BEST, "5 3")):
        drawing.line(at, 22, at + 22, 22, colour, 2.4, dash)
        drawing.text(at + 28, 26, name, 11)
        at += 118
    for row, mask in enumerate(("none", "causal")):
        for column, depth in enumerate(depths):
            lengths_panel(drawing, cells, MARGIN + column * (width + GAP + 8), TOP + row * pitch,
                          width, depth, mask, low, top)
    below = TOP + 2 * pitch
    half = (WIDTH - MARGIN - 16 - GAP) / 2
    grouped = [(name, cell) for name, cell in cells.items() if ".gqa8." in name]
    bars_panel(drawing, MARGIN - 36, below, half, "8 query heads a KV head, depth 128: times cuDNN",
               [(" ".join(name.split(".")[-2:]), cell["cudnn"],
                 cell["cudnn"] / cell["best"] if cell["best"] else None) for name, cell in grouped
                if cell["cudnn"]])
    flex = [(name, cell) for name, cell in cells.items() if cell["flex"]]
    if flex:
        bars_panel(drawing, MARGIN + half, below, half, "depth 128, 8k: times FlexAttention",
                   [(name.split(".")[-2], cell["flex"], None) for name, cell in flex])
    return drawing.svg(f"Drawn by bench/plot.py from bench/results/{source}")


def make(path):
    heading, cells = read(path.read_text(encoding="utf-8"))
    if not cells:
        raise SystemExit(f"{path} has no table")
    return draw(heading, cells, path.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="?", type=pathlib.Path, default=RESULTS)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=OUTPUT)
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    options = parser.parse_args()
    source = options.results
    svg = make(source)
    if options.check:
        if not options.output.exists() or options.output.read_text(encoding="utf-8") != svg:
            print(f"{options.output} is not drawn from {source}: run bench/plot.py", file=sys.stderr)
            return 1
        return 0
    options.output.write_text(svg, encoding="utf-8")
    print(options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
