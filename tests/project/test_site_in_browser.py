"""The built site, opened as files in a real browser, wide and narrow: its first page shows itself, no page is wider
than the window, and the search finds pages (docs/assets/iframe-worker.js: a page that is a file may start no Worker).
"""

import json
import os
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
ROOT = Path(__file__).resolve().parents[2]
WIDTHS = (1280, 390)
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="needs chromium on PATH to open the site"),
    pytest.mark.slow,
]

#: At the end of every page of a copy of the site: it tells whoever framed it how wide it became.
TELLS = """<script>
const all = document.scrollingElement;
addEventListener("load", () => parent.postMessage({
  title: document.title, window: innerWidth, wide: all.scrollWidth,
  pictures: [...document.querySelectorAll("article img")].map((i) => [i.naturalWidth, i.getBoundingClientRect().right]),
}, "*"));
</script>"""

#: One page after the other in a frame, since a headless window is never narrower than 500; what they told is the title.
FRAMES = """<!doctype html><body><script>
const told = {}, waiting = PAGES, frame = document.createElement("iframe");
const next = () => { if (waiting.length) frame.src = waiting[0]; else document.title = JSON.stringify(told); };
addEventListener("message", (said) => { told[waiting.shift()] = said.data; next(); });
frame.width = WIDTH; frame.height = 900; frame.style.border = 0;
document.body.append(frame);
next();
</script>"""


def opened(address: str, profile: Path) -> tuple[str, list[str]]:
    """The document after its scripts have run, and what the console complained about."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
             "--enable-logging=stderr", f"--user-data-dir={profile}", "--virtual-time-budget=60000",
             "--dump-dom"]  # fmt: skip
    done = subprocess.run([str(BROWSER), *flags, address], capture_output=True, text=True)
    assert "</html>" in done.stdout, done.stderr[-2000:]
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def told(site: Path, width: int, profile: Path) -> dict[str, dict]:
    """What every page of the navigation tells of itself in a window of that width."""
    pages = sorted(str(page) for page in paths(site) if in_navigation(page))
    for page in pages:
        text = (site / page).read_text(encoding="utf-8")
        if TELLS not in text:
            (site / page).write_text(text.replace("</body>", TELLS + "</body>"), encoding="utf-8")
    (site / "frames.html").write_text(FRAMES.replace("PAGES", json.dumps(pages)).replace("WIDTH", str(width)))
    dom, complaints = opened(f"file://{site}/frames.html", profile)
    assert complaints == []
    (title,) = re.findall(r"<title>(\{.*?\})</title>", dom, re.DOTALL)
    said = json.loads(unescape(title))
    assert sorted(said) == pages
    assert {page["window"] for page in said.values()} == {width}
    return said


def paths(site: Path) -> list[Path]:
    return [p.relative_to(site) for p in site.rglob("*.html")]


def in_navigation(page: Path) -> bool:
    """Not the listings of programs, nor the tables below docs/results, nor what is for the browser."""
    listed = page.parts[0] == "repository" or (page.parts[0] == "results" and len(page.parts) > 2)
    return not listed and page.name not in ("404.html", "frames.html")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(needed, reason=f"needs {needed}: pip install 'fedsofim[docs]'")
    folder = tmp_path_factory.mktemp("built") / "site"
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "-q", "-d", str(folder)], cwd=ROOT,
                          env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.parametrize("width", WIDTHS)
def test_the_first_page_shows_itself_and_no_page_is_wider_than_the_window(site: Path, width: int, tmp_path: Path):
    copy = Path(shutil.copytree(site, tmp_path / "site"))
    said = told(copy, width, tmp_path / "profile")
    assert said["index.html"]["title"] == "fedsofim"
    ((drawn, right),) = said["index.html"]["pictures"]
    assert drawn > 0 and right <= width
    assert {page: it["wide"] for page, it in said.items() if it["wide"] > width} == {}
    assert [page for page, it in said.items() if not all(drawn for drawn, _ in it["pictures"])] == []


def test_a_page_that_is_too_wide_is_noticed(tmp_path: Path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "wide.html").write_text('<body><div style="width: 900px">x</div></body>')
    assert told(tmp_path / "site", 390, tmp_path / "profile")["wide.html"]["wide"] > 390


# --- the search ---------------------------------------------------------------------------------------------


def found(site: Path, word: str, profile: Path) -> list[str]:
    """The pages that the first page's search lists for a word."""
    dom, _ = opened(f"file://{site}/index.html?q={word}", profile)
    return re.findall(r'<a href="([^"?]*)[^"]*" class="md-search-result__link"', dom)


def test_the_search_finds_pages(site: Path, tmp_path: Path):
    listed = found(site, "sherman", tmp_path / "profile")
    assert listed != []
    for page in listed:
        text = Path(page.removeprefix("file://").partition("#")[0]).read_text(encoding="utf-8")
        assert "sherman" in text.lower()
    assert found(site, "xylophone", tmp_path / "profile") == []


def test_without_our_script_the_search_would_find_nothing(site: Path, tmp_path: Path):
    copy = Path(shutil.copytree(site, tmp_path / "site"))
    (copy / "assets" / "iframe-worker.js").write_text("")
    assert found(copy, "sherman", tmp_path / "profile") == []
