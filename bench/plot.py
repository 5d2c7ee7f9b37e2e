#!/usr/bin/env python3
"""Draws the documents' pictures of results from bench/results/*.json as SVGs, for light and dark.

    python3 bench/plot.py                       # renews docs/sm90-speed.svg and the others
    python3 bench/plot.py --attnjit COMMAND     # and what that command draws or plans
    python3 bench/plot.py --check               # exit code 1 if a picture is not of its numbers

sm90-speed.svg has rates beside the peers under what the card can do, traffic.svg steps of traffic by
their ratio to the best peer, masks.svg the masks of docs/masks.md with their speed-up, cold-start.svg
the time to a first result, memory-map.svg the shared memory of a CTA, mask.svg the README's mask.
Standard library only; the same numbers give the same bytes.
"""
import argparse
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS, DOCS = ROOT / "bench/results", ROOT / "docs"
WIDTH = 960
PEAK_TFLOPS, PEAK_GB = 989, 4800  # of an H200, by its data sheet: dense bf16, memory
LENGTHS = ("1k", "2k", "4k", "8k", "16k")
PLAN = ("plan", "--arch", "sm_90a", "--num-q-heads", "32", "--group", "4", "--qk-depth", "128", "--mask", "causal")
# Recipes of docs/masks.md by what bench/results/masks.json calls them.
GALLERY = {"near": "two-sided window of 512", "packed": "documents of 1k, causal",
           "documents": "documents of 128 to 2k, causal", "prefix_lm": "prefix LM", "images": "image prefix",
           "sinks": "4 sinks, window of 1k", "r_swa": "R-SWA, 1k", "dilated": "dilated window of 512",
           "strided": "strided window", "blocks": "chosen blocks, 16 of 64"}
STYLE = """
text{font-family:system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328}
.dim{fill:#59636e}.paper{fill:#ffffff}.grid{stroke:#d1d9e0}.axis{stroke:#59636e}
.s0{stroke:#0969da}.s1{stroke:#bc4c00}.s2{stroke:#8250df}.f0{fill:#0969da}.f1{fill:#bc4c00}.f2{fill:#8250df}
.seen{fill:#0969da}.part{fill:#9cc7f5}.none{fill:#eaeef2}
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.dim{fill:#9198a1}.paper{fill:#0d1117}.grid{stroke:#3d444d}
.axis{stroke:#9198a1}.s0{stroke:#4493f8}.s1{stroke:#f0883e}.s2{stroke:#ab7df8}.f0{fill:#4493f8}.f1{fill:#f0883e}
.f2{fill:#ab7df8}.seen{fill:#4493f8}.part{fill:#1c4a80}.none{fill:#21262d}}
"""


def read(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def mean(ratios):
    """The geometric one."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


class Drawing:
    def __init__(self, title, below):
        self.parts, self.title = [], title
        self.text(20, 28, title, 17, weight=600)
        self.text(20, 48, below, 11, kind="dim")

    def text(self, x, y, text, size=12, anchor="start", kind="", weight=400):
        text = str(text).replace("&", "&amp;").replace("<", "&lt;")
        kind = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
                          f'font-weight="{weight}"{kind}>{text}</text>')

    def line(self, x1, y1, x2, y2, kind="grid", width=1.0, dash=""):
        dash = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}" '
                          f'stroke-width="{width}"{dash}/>')

    def path(self, points, series):
        where = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{where}" fill="none" class="s{series}" stroke-width="2"/>')
        self.parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" class="f{series}"/>' for x, y in points]

    def box(self, x, y, width, height, kind, tip=""):
        tip = f"<title>{tip}</title>" if tip else ""
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
                          f'class="{kind}">{tip}</rect>')

    def dot(self, x, y, tip):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" class="f0" fill-opacity="0.6">'
                          f'<title>{tip}</title></circle>')

    def legend(self, names, x, y):
        for i, name in enumerate(names):
            self.box(x + 190 * i, y - 9, 12, 10, f"f{i}")
            self.text(x + 190 * i + 18, y, name, 12)

    def panel(self, x, y, width, height, title, top, step, names, series, roof):
        """Lines over names, from 0 to top, below a roof (value, its name)."""
        self.text(x, y - 12, title, 13, weight=600)
        for tick in range(0, top + 1, step):
            at = y + height - tick / top * height
            self.line(x, at, x + width, at)
            self.text(x - 6, at + 4, tick, 10, "end", "dim")
        at = y + height - roof[0] / top * height
        self.line(x, at, x + width, at, "axis", 1.4, "6 4")
        self.text(x + 4, at + 13, roof[1], 10, kind="dim")
        places = {name: x + width * (i + 0.5) / len(names) for i, name in enumerate(names)}
        for name, place in places.items():
            self.text(place, y + height + 15, name, 10, "middle", "dim")
        for i, values in reversed(list(enumerate(series))):
            self.path([(places[name], y + height - value / top * height) for name, value in values.items()], i)

    def bars(self, y, rows, scale, label=330, step=22, line=0):
        """Horizontal bars (name, value, its text); the text stands behind the bar and a line at `line`."""
        for i, (name, value, text) in enumerate(rows):
            self.text(label, y + i * step + 13, name, 12, "end")
            self.box(label + 12, y + i * step + 3, scale(value), step - 8, "f0")
            self.text(max(label + 18 + scale(value), line + 6), y + i * step + 13, text, 12)
        return y + len(rows) * step

    def svg(self, height, source):
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" role="img">', f"<title>{self.title}</title>",
            f"<desc>Drawn by bench/plot.py from {source}</desc>", f"<style>{STYLE}</style>",
            f'<rect width="{WIDTH}" height="{height}" class="paper"/>', *self.parts, "</svg>", ""])


def speed():
    record, decodes = read("sm90-dense"), read("sm90-decodes")
    drawing = Drawing("Attention on an H200, beside its peers and below what the card can do",
                      f"{record['machine']}; {record['peers']}; each cell's contenders by turns in one process")
    peers = ("attnjit", "fa3", "cudnn")
    drawing.legend(("attnjit", "FlashAttention-3", "cuDNN"), 56, 74)
    found = {cell["name"]: cell["tflops"] for cell in record["cells"]}
    for row, mask in enumerate(("none", "causal")):
        for column, depth in enumerate((64, 128, 256)):
            series = [{length: found[f"bf16.{depth}.{mask}.{length}"][peer] for length in LENGTHS
                       if peer in found.get(f"bf16.{depth}.{mask}.{length}", {})} for peer in peers]
            title = f"TFLOP/s, depth {depth}, {'causal' if mask == 'causal' else 'no mask'}"
            drawing.panel(56 + column * 306, 112 + row * 218, 256, 150, title, 1000, 250, LENGTHS, series,
                          (PEAK_TFLOPS, "989: tensor cores"))
    y = 112 + 2 * 218
    drawing.text(56, y + 2, "Decodes of one row over pages of 64: GB/s of K and V, by the batch", 13, weight=600)
    drawing.legend(("attnjit", "faster of FA3 and FlashInfer"), 56, y + 24)
    for column, keys in enumerate((1024, 8192, 32768)):
        ours, best = {}, {}
        for pages, heads, batch, *cells in decodes["rows"]:
            if pages != 64 or heads != "32/8":
                continue
            us, ratio = cells[column]
            ours[str(batch)] = batch * keys * 8 * 128 * 2 * 2 / us / 1e3
            best[str(batch)] = ours[str(batch)] / ratio
        drawing.panel(56 + column * 306, y + 62, 256, 150, f"{keys // 1024}k keys", 5000, 1000, list(ours),
                      [ours, best], (PEAK_GB, "4800: memory"))
    return drawing.svg(y + 250, "bench/results/sm90-dense.json and sm90-decodes.json")


def traffic():
    record = read("traffic")
    drawing = Drawing("Steps of servers' traffic: the best peer's time over attnjit's",
                      f"{record['machine']}; beside {record['peers']}; a dot is a step, the bar their geometric mean")
    rows = {}
    for step in record["steps"]:
        if "ratio" in step:
            rows.setdefault(step["scenario"], []).append((step["ratio"], step["name"]))
    ratios = [ratio for row in rows.values() for ratio, _ in row]
    low, high = min([0.9, *ratios]) / 1.02, max([1.6, *ratios]) * 1.02

    def place(ratio):
        return 120 + math.log(ratio / low) / math.log(high / low) * 760
    end = 84 + len(rows) * 34
    for tick in (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.4, 1.6, 2, 2.5, 3, 4):
        if low < tick < high:
            drawing.line(place(tick), 76, place(tick), end, *(("axis", 1.6) if tick == 1 else ()))
            drawing.text(place(tick), 70, f"{tick:g}", 10, "middle", "dim")
    for i, (scenario, row) in enumerate(rows.items()):
        y = 84 + i * 34
        of_all = mean([ratio for ratio, _ in row])
        drawing.text(106, y + 21, scenario, 12, "end")
        drawing.box(place(of_all) - 1.5, y + 4, 3, 26, "f1", f"geometric mean {of_all:.3f}")
        for ratio, name in row:
            drawing.dot(place(ratio), y + 17, f"{name}: {ratio:.3f}")
        drawing.text(890, y + 21, f"{of_all:.2f}", 12, weight=600)
    return drawing.svg(end + 16, "bench/results/traffic.json")


def recipes():
    """{name: (lines of its picture)} of docs/masks.md."""
    found, name, halves = {}, None, []
    for line in [*(DOCS / "masks.md").read_text(encoding="utf-8").split("\n"), ""]:
        named = re.search(r'"kind": "custom", "name": "(\w+)"', line)
        if re.fullmatch(r"    [./#]+(   [./#]+)?", line):
            halves.append(line.split())
        else:
            if halves:
                lines = [half[0] for half in halves] + [half[1] for half in halves if len(half) > 1]
                found.setdefault(name, lines)
                halves = []
            name = named[1] if named else name
    return found


def gallery():
    record, pictures, best, label = read("masks"), recipes(), {}, ""
    for row in record["rows"]:
        label = row[0] or label
        values = dict(zip(record["columns"], row))
        if label not in best or values["attnjit, ms"] < best[label]["attnjit, ms"]:
            best[label] = values
    drawing = Drawing("Masks of your own, and how much faster than FlexAttention they run",
                      f"An H200, 2 x 8k tokens, 16 heads, depth 128; the picture: 1024 queries (down) by 1024 keys; "
                      f"filled: each key is seen, pale: some are, empty: not loaded")
    for i, (recipe, name) in enumerate(GALLERY.items()):
        x, y = 20 + i % 5 * 188, 76 + i // 5 * 210
        for row, line in enumerate(pictures[recipe]):
            for column, sign in enumerate(line):
                kind = {"#": "seen", "/": "part", ".": "none"}[sign]
                drawing.box(x + column * 16, y + row * 8, 15.5, 7.5, kind)
        drawing.text(x, y + 146, name.partition(", ")[0][:24], 12, weight=600)
        flash = best[name]["FLASH / attnjit"]
        drawing.text(x, y + 163, f"{best[name]['default / attnjit']:.2f} times the default", 12)
        drawing.text(x, y + 179, f"{flash:.2f} times FLASH" if isinstance(flash, float) else "no FLASH", 12, kind="dim")
    return drawing.svg(76 + 2 * 210, "bench/results/masks.json and docs/masks.md")


def cold_start():
    record = read("sm90-start")
    rows = [(f"{'' if 'Flex' in what else 'attnjit, '}{what}: {state}", ms, f"{ms:,.0f} ms" if ms >= 10 else f"{ms} ms")
            for what, cold, warm in record["rows"] for state, ms in (("compiled", cold), ("from its cache", warm))]
    drawing = Drawing("From a spec to the first result in a new process",
                      f"{record['machine']}; beside {record['peers']}; milliseconds on a logarithmic scale, without "
                      f"the CUDA context")
    def scale(ms):
        return math.log10(ms) / 4 * 500
    end = 86 + len(rows) * 26
    for power in range(5):
        drawing.line(342 + scale(10 ** power), 78, 342 + scale(10 ** power), end)
        drawing.text(342 + scale(10 ** power), 74, ("1 ms", "10 ms", "0.1 s", "1 s", "10 s")[power], 10, "middle", "dim")
    drawing.bars(86, rows, scale, step=26)
    return drawing.svg(end + 16, "bench/results/sm90-start.json")


def memory_map(command):
    plan = json.loads(subprocess.run([command, *PLAN, "--json"], capture_output=True, text=True, check=True).stdout)
    regions, total = plan["kernel"]["smem_map"], plan["kernel"]["smem_bytes"]
    drawing = Drawing("Shared memory of a CTA: causal prefill at depth 128 on sm_90a",
                      f"{total:,} bytes of 232,448; attnjit plan --json: smem_map")
    def scale(size):
        return size / 232448 * 920
    kinds = {"Q": "f0", "K": "f1", "V": "f2", "O": "seen"}
    for i, region in enumerate(regions):
        x, width = 20 + scale(region["begin"]), scale(region["size"])
        drawing.box(x, 70, max(width - 1, 1.5), 46, kinds.get(region["name"][0], "part"),
                    f"{region['name']}: {region['size']} bytes at {region['begin']}")
        small = width < 40
        at = 158 + 17 * (len(regions) - 1 - i) if small else 134
        drawing.text(x + (width / 2 if not small else 0), at, region["name"], 12, "end" if small else "middle")
        if small:
            drawing.text(x + 8, at, f"{region['size']} bytes", 11, kind="dim")
            drawing.line(x, 116, x, at - 12, "axis")
        else:
            drawing.text(x + width / 2, 150, f"{region['size'] // 1024} KiB", 11, "middle", "dim")
    drawing.line(20, 122, 940, 122, "axis")
    return drawing.svg(200, "attnjit plan")


def mask(command):
    """What attnjit plan --draw-mask draws of the README's mask."""
    words = ("plan", str(ROOT / "examples/sinks-and-window.json"), "--draw-mask", "--q-len", "1024", "--kv-len", "1024")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "mask.svg"
        subprocess.run([command, *words, "-o", str(path)], capture_output=True, check=True)
        return path.read_text(encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attnjit", help="the command that plans the memory map and draws the mask")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    options = parser.parse_args()
    pictures = {"sm90-speed": speed, "traffic": traffic, "masks": gallery, "cold-start": cold_start}
    if options.attnjit:
        pictures["memory-map"] = lambda: memory_map(options.attnjit)
        pictures["mask"] = lambda: mask(options.attnjit)
    stale = 0
    for name, draw in pictures.items():
        path, svg = DOCS / f"{name}.svg", draw()
        if options.check and (not path.exists() or path.read_text(encoding="utf-8") != svg):
            print(f"{path} is not drawn from its numbers: run bench/plot.py", file=sys.stderr)
            stale = 1
        elif not options.check:
            path.write_text(svg, encoding="utf-8")
            print(path)
    return stale


if __name__ == "__main__":
    sys.exit(main())
