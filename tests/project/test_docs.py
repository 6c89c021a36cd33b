"""What readers are shown is true: code runs, and every file and name in the architecture page is there."""

import ast
import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import fedsofim
from fedsofim import Budget, InputError, Method, Refused, make, train
from fedsofim.methods import PUBLISHED
from toy import make_toy

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "fedsofim"
EXAMPLES = ROOT / "examples"
MODULES = sorted(m.name for m in pkgutil.walk_packages(fedsofim.__path__, "fedsofim."))
ROOMS = sorted(p.parent.name for p in SOURCE.glob("*/__init__.py"))
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


@pytest.mark.parametrize("name", ["fedsofim", *MODULES])
def test_doctests(name: str):
    try:
        module = importlib.import_module(name)
    except (ModuleNotFoundError, InputError) as missing:
        assert "fedsofim." not in str(missing)  # what is ours is never missing
        pytest.skip(f"needs an optional package: {missing}")
    with jax.enable_x64(False):
        assert doctest.testmod(module).failed == 0


# --- code on the pages --------------------------------------------------------------------------------------


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.mark.slow
def test_the_method_in_contributing_is_the_example_and_is_calibrated():
    code = blocks("CONTRIBUTING.md")[0]
    assert code == (EXAMPLES / "heavyball.py").read_text()
    assert len(code.splitlines()) < 40
    run = train(make_toy(), make(str(EXAMPLES / "heavyball.py")), Budget(20.0), rounds=10, clip=2.0, recipe="paper")
    assert run.plan.releases == 20
    assert run.plan.epsilon == pytest.approx(20.0)


@pytest.mark.parametrize("name", ["two_layers", "rings"])
def test_what_contributing_shows_of_a_model_and_a_dataset_is_in_their_examples(name: str):
    (shown,) = [code for code in blocks("CONTRIBUTING.md") if f"def {name}(" in code]
    lines = [line.strip() for line in (EXAMPLES / f"{name}.py").read_text().splitlines()]
    for line in map(str.strip, shown.splitlines()):
        assert line == "..." or line in lines


def test_the_leaky_one_is_refused_with_the_message_shown():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    (code,) = [code for code in blocks("CONTRIBUTING.md") if "def leaky(" in code]
    space: dict = {"jnp": jnp}
    exec(code, space)
    method = Method("leaky", space["leaky"], lambda mean, state, params, facts: (params, state))
    with pytest.raises(Refused) as refused:
        train(make_toy(), method, Budget(1.0), rounds=2, recipe="paper")
    shown = " ".join(line.lstrip("> ") for line in page.splitlines() if line.startswith("> "))
    assert str(refused.value) == shown


@pytest.mark.slow
def test_readme_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("README.md")
    with jax.enable_x64(False):
        exec(code.replace('"fashion"', '"digits"').replace("rounds=70", "rounds=5"), {})


@pytest.mark.slow
def test_plain_loop_example_runs():
    done = subprocess.run([sys.executable, EXAMPLES / "plain_loop.py"], capture_output=True, text=True, check=True)
    assert "DP-FedSOFIM" in done.stdout


# --- names on the pages -------------------------------------------------------------------------------------

#: `core/round.py`, or the same with what is in it: `core/round.py` `federated_round`, `Rules`
PLACE = re.compile(r"`([\w/.-]+\.(?:py|cc|h))`((?:,? `[A-Za-z_][\w.]*`)*)")
PLACES = sorted(set(PLACE.findall(ARCHITECTURE)))


def found(path: str) -> Path:
    """A file by its path in the package, or in the project."""
    places = [p for p in (SOURCE / path, ROOT / path) if p.is_file()]
    assert places, f"{path} is not there"
    return places[0]


@lru_cache
def names_in(path: Path) -> set[str]:
    """What a module defines: functions, classes and their members, constants."""
    out: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        out |= (own := defined(node))
        if isinstance(node, ast.ClassDef):
            out |= {f"{name}.{member}" for name in own for inner in node.body for member in defined(inner)}
    return out


def defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {t.id for target in targets for t in ast.walk(target) if isinstance(t, ast.Name)}


@pytest.mark.parametrize(("path", "names"), PLACES)
def test_every_file_and_name_in_the_architecture_exists(path: str, names: str):
    file = found(path)
    for name in re.findall(r"`(.+?)`", names):
        assert name in names_in(file), f"{path} has no {name}"


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_is_described_and_drawn_with_what_it_holds(room: str):
    assert f"`{room}/`" in ARCHITECTURE
    drawn = set(re.findall(r"[\w]+", (ROOT / "docs" / "architecture.svg").read_text()))
    (line,) = re.findall(rf"^{room}/((?:[^\n]|\n )*)", tree(), re.MULTILINE)
    modules = [p for p in (SOURCE / room).rglob("*.py") if (p.parent / "__init__.py").exists()]
    stems = {p.stem for p in modules if p.stem != "__init__"}
    if room == "methods":
        stems = {name for name in stems if name in PUBLISHED}  # a new one needs no other change
    assert stems <= set(line.split()), "docs/architecture.md: add to its tree"
    assert stems <= drawn, "run scripts/draw_architecture.py"


def tree() -> str:
    (text,) = re.findall(r"```text\n(src/fedsofim.*?)```", ARCHITECTURE, re.DOTALL)
    return text


def test_the_tree_names_nothing_that_is_gone():
    for room, rest in re.findall(r"^(\w+)/((?:[^\n]|\n )*)", tree(), re.MULTILINE):
        gone = {name for name in rest.split() if name.isidentifier() and not list((SOURCE / room).rglob(f"{name}.*"))}
        assert not gone, room


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str):
    text, folder = (ROOT / page).read_text(), (ROOT / page).parent
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (folder / target).exists(), f"{page} links to {target}"


@pytest.mark.parametrize("page", PAGES)
def test_paths_on_the_pages_exist(page: str):
    for path in re.findall(r"`((?:src|tests|examples|benchmarks|scripts|docs)/[\w/.-]+)`", (ROOT / page).read_text()):
        assert (ROOT / path).exists(), f"{page} names {path}"


@pytest.mark.parametrize("page", PAGES)
def test_modules_on_the_pages_exist(page: str):
    for name in set(re.findall(r"\bfedsofim(?:\.(?!py\b)[a-z_]\w*)+", (ROOT / page).read_text())):
        parts = name.split(".")[1:]
        known = {"methods", "models", "datasets"} & {parts[0]} and len(parts) == 1  # groups of entry points
        assert known or any((SOURCE / Path(*parts)).with_suffix(s).exists() for s in ("", ".py")), f"{page}: {name}"
