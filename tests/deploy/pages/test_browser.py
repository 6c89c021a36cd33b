"""Both pages in a real browser, with what strangers may write: it stays text, and the script keeps up."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from fedsofim.deploy.pages import rendered
from fedsofim.deploy.pages.coordinators import job_view
from fedsofim.deploy.pages.loopback import Page, served
from fedsofim.deploy.pages.operators import Operators
from fedsofim.deploy.stopping import stop, stopped_since
from page_marks import Marks
from page_worlds import HOSTILE, make_hostile, make_hostile_job

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="needs chromium on PATH to open the pages"),
    pytest.mark.slow,
]


def opened(page: Page, profile: Path) -> tuple[str, str]:
    """The document after the script has looked at least once, and what the browser complained about."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
             "--enable-logging=stderr", f"--user-data-dir={profile}",
             "--virtual-time-budget=5000", "--dump-dom"]  # fmt: skip
    with served(page) as address:
        done = subprocess.run([str(BROWSER), *flags, address], capture_output=True, text=True)
    assert "</html>" in done.stdout, done.stderr[-2000:]
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def check_harmless(dom: str, complaints: str, title: str) -> None:
    assert complaints == ""
    assert 'data-looked="yes"' in dom, "the script did not run"
    assert re.findall(r"<title>(.*?)</title>", dom) == [title]
    tags = {tag for tag, _ in Marks(dom).found}
    assert "img" not in tags
    assert len(re.findall("<script", dom)) == 1
    assert len(re.findall("<h1", dom)) == 1
    assert not [name for _, names in Marks(dom).found for name in names if name.startswith("on")]
    for text in HOSTILE:
        assert text in Marks(dom).text


def test_the_operators_page(tmp_path: Path):
    """Stopped behind the page's back: what the script shows is newer than what was served."""
    policy = make_hostile(tmp_path / "node")
    watched, looks = Operators(tmp_path / "node" / "policy.toml"), []

    def view():
        looks.append(1)
        if len(looks) == 2:
            stop(policy.ledger)
        return watched.view()

    dom, complaints = opened(Page(kind="node", view=view, acts={"stop": watched.stop}), tmp_path / "profile")
    check_harmless(dom, complaints, "n0")
    assert len(looks) >= 2
    assert re.search(r'id="state" class="state bad"[^>]*>stopped since', dom)
    assert re.search(r'<form id="stop"[^>]*hidden', dom)
    assert not re.search(r'<form id="resume"[^>]*hidden', dom)
    part = float(re.findall(r'id="part" width="([\d.]+)"', dom)[0])
    assert part == pytest.approx(100 * watched.view().gauge.part, abs=1e-4)


def test_the_coordinators_page(tmp_path: Path):
    folder = make_hostile_job(tmp_path / "first")
    dom, complaints = opened(Page(kind="job", view=lambda: job_view(folder)), tmp_path / "profile")
    check_harmless(dom, complaints, "first")
    curve = job_view(folder).curve
    assert curve is not None
    assert re.findall(r'points="([^"]+)"', dom) == [unescape(curve.points)]
    assert "ended early" in dom


@pytest.fixture
def pressing(monkeypatch) -> Iterator[None]:
    """A page whose own script presses the switch as soon as it is there, as a finger would."""
    real = rendered._file
    press = '\nif (!by("stop").hidden) by("stop").requestSubmit();\n'
    monkeypatch.setattr(rendered, "_file", lambda name: real(name) + press * (name == "page.js"))
    rendered.content_policy.cache_clear()
    yield
    rendered.content_policy.cache_clear()


def test_pressing_stop_in_a_browser_stops_the_node(tmp_path: Path, pressing):
    policy = make_hostile(tmp_path / "node")
    watched = Operators(tmp_path / "node" / "policy.toml")
    dom, complaints = opened(Page(kind="node", view=watched.view, acts={"stop": watched.stop}), tmp_path / "profile")
    assert complaints == ""
    assert stopped_since(policy.ledger) is not None
    assert "stopped by you" in dom
