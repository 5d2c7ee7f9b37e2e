# SPDX-License-Identifier: Apache-2.0
"""How high the site's search ranks a page: guides before pages made of headers, the changelog last.

MkDocs calls it as a hook (pages.py names it), also for what mkdoxy's pages have wrong.
"""
import re


# Less than a thousandth of the weight that the search gives to titles.
LATER = {"boost": 0.001}


def on_page_markdown(markdown, page, **_):
    name = page.file.src_uri
    if name.startswith(("cpp/", "c/")):
        entity = "/struct" in name or "/class" in name or name == "c/attnjit_8h.md"
        page.meta["search"] = LATER if entity else {"exclude": True}
    elif name == "CHANGELOG.md" or "/proof/" in name:
        page.meta["search"] = LATER
    return markdown


def on_page_content(html, page, **_):
    """Links of mkdoxy's pages to headings that they do not have become text."""
    if not page.file.src_uri.startswith(("cpp/", "c/")):
        return html
    ids = set(re.findall(r'\bid="([^"]+)"', html))
    return re.sub(r'<a href="#([^"]+)">(.*?)</a>',
                  lambda link: link[0] if link[1] in ids else link[2], html)
