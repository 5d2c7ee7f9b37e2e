#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every link of a built site leads to a file of it, and every # to an id: links.py SITE.

Links to other hosts are not followed. Exit code 1 where one is broken.
"""
import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.add(value)
            elif name in ("href", "src") and value and tag in ("a", "img", "link", "script"):
                self.links.append(value)


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    broken, count = [], 0
    for path, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            count += 1
            target = path
            if parts.path:
                target = (path.parent / urllib.parse.unquote(parts.path)).resolve()
                target = target / "index.html" if target.is_dir() else target
            where = path.relative_to(site)
            if not target.is_file() or site not in target.parents:
                broken.append(f"{where}: {link} leads nowhere")
            elif parts.fragment and target in pages:
                if urllib.parse.unquote(parts.fragment) not in pages[target].ids:
                    broken.append(f"{where}: {link}: there is no such heading")
    print(f"{len(pages)} pages, {count} links", *broken, sep="\n")
    return 1 if broken or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
