#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks at the built site in headless Chromium: chromium.py SITE PICTURES

Each page is laid out at 390 and 1440 pixels, light and dark, as the reader's system asks for. Wrong is:

- a page wider than its window, and a block that is cut off and cannot be scrolled;
- a picture that is not loaded;
- text with a contrast below 4.5 to 1, and a scheme that is not the one asked for;
- a search that names the changelog or a header before the guide.

PICTURES gets a screenshot of each kind of page. links.py checks the links.
"""
import functools
import http.server
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading

WIDTHS = (390, 1440)
SCHEMES = {"light": "default", "dark": "slate"}
KINDS = {"start": "index.html", "guide": "docs/quickstart.html", "reference": "docs/spec.html",
         "results": "docs/performance-sm90.html", "python": "api-python.html",
         "cpp": "cpp/classattnjit_1_1Service.html", "c": "c/attnjit_8h.html"}
SEARCHES = {"prewarm": "docs/", "upgrade": "docs/operators.html", "quickstart": "docs/quickstart.html"}
HARNESS = """<!doctype html><meta charset="utf-8"><body style="margin:0"><script>
const todo = %s, widths = %s, scheme = "%s", searches = %s, found = [], say = (...a) => found.push(a.join(": "));
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
async function open(frame, page, width) {
  frame.style = `width:${width}px;height:900px;border:0`;
  const loaded = new Promise((done) => frame.onload = done);
  frame.src = "/" + page;
  await loaded;
  await wait(30);
  return frame.contentDocument;
}
function luminance(color) {
  const [r, g, b] = color.match(/[\\d.]+/g).map((x) => x / 255)
    .map((x) => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function background(view, one) {
  for (; one; one = one.parentElement) {
    const color = view.getComputedStyle(one).backgroundColor;
    if (!/rgba\\(.*, 0\\)|transparent/.test(color)) return color;
  }
  return "rgb(255, 255, 255)";
}
function look(page, width, document, view) {
  const where = `${page} at ${width} px, ${scheme}`;
  const wide = document.documentElement.scrollWidth;
  if (wide > width) say(where, `is ${wide} px wide`);
  if (document.body.dataset.mdColorScheme !== "%s") say(where, "has the scheme " + document.body.dataset.mdColorScheme);
  for (const one of document.querySelectorAll(".md-content *")) {
    const style = view.getComputedStyle(one), box = one.getBoundingClientRect();
    if (!box.width || style.visibility === "hidden" || one.closest(".md-clipboard, .md-nav, svg")) continue;
    if (one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0 && ["hidden", "clip"].includes(style.overflowX))
      say(where, `cuts off <${one.tagName.toLowerCase()} class="${one.className}">`, one.textContent.trim().slice(0, 40));
    if (box.right > width + 1) {
      let holder = one.parentElement;
      while (holder && !["auto", "scroll"].includes(view.getComputedStyle(holder).overflowX)) holder = holder.parentElement;
      if (!holder) say(where, `<${one.tagName.toLowerCase()}> ends at ${Math.round(box.right)}`);
    }
  }
  for (const one of document.images) if (!one.complete || !one.naturalWidth) say(where, "has no picture " + one.src);
  for (const one of document.querySelectorAll(".md-content p, .md-content li, .md-content td, .md-content h2")) {
    if (!one.textContent.trim() || !one.getBoundingClientRect().width) continue;
    const [a, b] = [luminance(view.getComputedStyle(one).color), luminance(background(view, one))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) { say(where, `has contrast ${contrast.toFixed(2)}`, one.textContent.trim().slice(0, 40)); break; }
  }
}
(async () => {
  const frame = document.body.appendChild(document.createElement("iframe"));
  for (const width of widths) for (const page of todo)
    look(page, width, await open(frame, page, width), frame.contentWindow);
  for (const [words, guide] of Object.entries(searches)) {
    const page = await open(frame, "index.html", 1440), input = page.querySelector(".md-search__input");
    input.focus();
    input.value = words;
    let first = null;
    for (let i = 0; i < 100 && !first; ++i) {
      input.dispatchEvent(new Event("keyup", {bubbles: true}));
      await wait(100);
      first = page.querySelector(".md-search-result__link");
    }
    const name = first ? new URL(first.href).pathname : "nothing";
    if (!name.startsWith("/" + guide)) say("a search for " + words, `names ${name} first, and not ${guide}`);
  }
  await fetch("/found", {method: "POST", body: JSON.stringify({count: todo.length * widths.length, found})});
})().catch((error) => fetch("/found", {method: "POST", body: JSON.stringify({count: 0, found: [String(error)]})}));
</script>"""


class Server(http.server.SimpleHTTPRequestHandler):
    """The site, the page that looks at it, and one page in a window of a width."""

    def do_GET(self):
        page = {"/look": self.server.harness}.get(self.path)
        if self.path.startswith("/frame/"):
            width, name = self.path[7:].split("/", 1)
            page = f'<!doctype html><body style="margin:0"><iframe style="width:{width}px;height:1000px;border:0" ' \
                   f'src="/{name}"></iframe>'
        if page is None:
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(page.encode())

    def do_POST(self):
        self.server.answer = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.server.answered.set()

    def log_message(self, *_):
        pass


def chromium(scheme, profile, *arguments):
    """The command of a browser whose system asks for a scheme."""
    return ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
            "--disable-background-networking", f"--user-data-dir={profile}",
            f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}", *arguments]


def main():
    site, pictures = (pathlib.Path(one).resolve() for one in sys.argv[1:3])
    pictures.mkdir(parents=True, exist_ok=True)
    # Of the pages that are made of headers a few stand for all.
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if path.name != "404.html")
    pages = [one for one in pages if not one.startswith(("cpp/", "c/")) or one in KINDS.values()]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    problems = []
    for scheme, name in SCHEMES.items():
        server.harness = HARNESS % (json.dumps(pages), json.dumps(WIDTHS), scheme, json.dumps(SEARCHES), name)
        server.answered = threading.Event()
        with tempfile.TemporaryDirectory() as profile:
            browser = subprocess.Popen(chromium(scheme, profile, "--remote-debugging-port=0", base + "/look"),
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                if not server.answered.wait(600):
                    sys.exit("chromium.py: Chromium has not answered within 600 s")
            finally:
                browser.terminate()
                browser.wait()
            problems += server.answer["found"]
            print(f"{scheme}: {server.answer['count']} layouts of {len(pages)} pages")
            for kind, page in KINDS.items():
                for width in WIDTHS:
                    file = pictures / f"{kind}-{width}-{scheme}.png"
                    file.unlink(missing_ok=True)
                    subprocess.run(chromium(scheme, profile, f"--window-size={max(width, 500)},1000",
                                            "--virtual-time-budget=5000", f"--screenshot={file}",
                                            f"{base}/frame/{width}/{page}"), check=True, timeout=120,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                    size = struct.unpack(">II", file.read_bytes()[16:24])
                    if size[0] < width or file.stat().st_size < 20_000:
                        problems.append(f"{file.name}: {size}, {file.stat().st_size} bytes: nothing is to be seen")
    print(*problems, sep="\n", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
