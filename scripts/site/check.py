"""Look at a built site as a browser would that has no network: `python scripts/site/check.py site`.

Every link, picture, style and script must be a file of the site, every anchor a name on its page. Links to elsewhere
are allowed in the text and are not followed; nothing that a page loads by itself may be elsewhere.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


class Page(HTMLParser):
    """What a page refers to, and the names on it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[tuple[str, str, str]] = []
        self.names: set[str] = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        self.names |= {given[key] for key in ("id", "name") if key in given}
        self.links += [(tag, key, given[key]) for key in ("href", "src") if key in given]


def faults(site: Path) -> list[str]:
    """What is wrong with a site, a sentence each."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    return [
        f"{path.relative_to(site)}: {what}"
        for path, page in pages.items()
        for tag, key, link in page.links
        if (what := fault(path, tag, key, link, pages))
    ]


def fault(path: Path, tag: str, key: str, link: str, pages: dict[Path, Page]) -> str:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return f"loads {link} from elsewhere" if (tag, key) in LOADED and parts.scheme != "data" else ""
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        return f"links to {link}, which is not there" if path.name != "404.html" else ""
    known = pages.get(target)
    if parts.fragment and known is not None and unquote(parts.fragment) not in known.names:
        return f"links to {link}, and there is no such heading"
    return ""


def main() -> None:
    site = Path(sys.argv[1]).resolve()
    found = faults(site)
    print("\n".join(found) or f"{site}: every link leads somewhere, and nothing is loaded from elsewhere")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
