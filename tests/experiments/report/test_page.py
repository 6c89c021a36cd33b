"""The page: one file, no request, opens without an error in a browser, and its tables sort."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

CHECK = """
<script>
const errors = [];
window.addEventListener("error", (e) => errors.push(String(e.message)));
const plain = console.error; console.error = (...a) => { errors.push(a.join(" ")); plain(...a); };
window.addEventListener("load", () => {
  const table = document.querySelector("table.sortable");
  const column = [...table.tHead.rows[0].cells].findIndex((c) => c.textContent === "method");
  const values = (i) => [...table.tBodies[0].rows].map((r) => r.cells[i].dataset.value ?? r.cells[i].textContent);
  const press = (i) => table.tHead.rows[0].cells[i].querySelector("button").click();
  const last = table.tHead.rows[0].cells.length - 2;
  press(last); const up = values(last).map(Number);
  press(last); const down = values(last).map(Number);
  press(column); const names = values(column);
  const loaded = [...document.images].every((i) => i.complete && i.naturalWidth > 0);
  document.title = JSON.stringify({ errors, up, down, names, loaded, images: document.images.length });
});
</script>
"""


@pytest.fixture(scope="module")
def seen(reported: Path, tmp_path_factory) -> dict:
    """What a browser makes of the page."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("needs chromium on PATH to open the page")
    folder = tmp_path_factory.mktemp("browser")
    html = (reported / "report.html").read_text().replace("<head>", "<head>" + CHECK, 1)
    (folder / "page.html").write_text(html)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
             f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=5000", "--dump-dom"]  # fmt: skip
    done = subprocess.run([browser, *flags, f"file://{folder / 'page.html'}"], capture_output=True, text=True)
    found = re.search(r"<title>(\{.*?\})</title>", done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    return json.loads(unescape(found.group(1)))


@pytest.mark.slow
def test_no_console_error_and_all_figures_load(seen):
    assert seen["errors"] == []
    assert seen["loaded"]
    assert seen["images"] >= 4


def test_a_click_sorts_by_number_and_a_second_one_turns_round(seen):
    assert seen["up"] == sorted(seen["up"])
    assert seen["down"] == seen["up"][::-1]
    assert seen["names"] == sorted(seen["names"], key=str.casefold)


def test_the_page_asks_nobody_for_anything(reported):
    html = (reported / "report.html").read_text()
    loads = re.findall(r"""(?:src|href)=["']([^"']*)""", html)
    assert all(u.startswith(("data:", "#")) for u in loads)
    assert "@import" not in html
    assert "url(" not in html


def test_names_are_escaped_and_notes_shown(reported):
    html = (reported / "report.html").read_text()
    assert "small &lt;grid&gt;" in html
    assert "small <grid>" not in html
    assert html.count("NOT PRIVATE AS CLAIMED") >= 2
    assert "Not covered" in html


def test_all_files_are_there(reported):
    names = {p.name for p in (reported / "tables").iterdir()}
    for table in ("accuracy", "differences", "mcnemar", "rounds-to-target", "partition"):
        for kind in ("md", "tex", "csv"):
            assert f"{table}-cifar10_resnet20-dirichlet-0.5.{kind}" in names
    figures = {p.name.split("-cifar10")[0] for p in (reported / "figures").iterdir()}
    assert figures == {"curves", "partition", "privacy-utility", "rounds-to-target"}
    assert len((reported / "rows.csv").read_text().splitlines()) == 1 + 12 * 20
