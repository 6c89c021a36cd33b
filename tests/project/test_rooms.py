"""The house: each room imports only from those before it, and the contract that says so can fail."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "fedsofim"
ROOMS = [
    "native",
    "data",
    "core",
    "models",
    "methods",
    "recipes",
    "trained",
    "simulation",
    "theory",
    "experiments",
    "deploy",
    "attack",
    "cli",
]  # in their order
FOLDERS = ("src", "tests", "benchmarks", "examples", "experiments", "scripts")
PYTHON = sorted(
    p
    for folder in FOLDERS
    for p in (ROOT / folder).rglob("*.py")
    if ".venv-peers" not in p.parts  # of make bench
)


def contract(folder: Path) -> subprocess.CompletedProcess[str]:
    """What `make lint` says about the rooms of a copy of the project."""
    tool = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [tool, "--no-cache"], cwd=folder, env={"PYTHONPATH": str(folder / "src")}, capture_output=True, text=True
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(SOURCE, tmp_path / "src" / "fedsofim", ignore=shutil.ignore_patterns("*.npz", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_rooms_keep_their_order():
    done = contract(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("core/plan.py", "from fedsofim.simulation import simulator"),
        ("core/records.py", "from fedsofim.data.partition import Split"),
        ("data/tables.py", "from fedsofim.core.plan import Plan"),
        ("native/sums.py", "from fedsofim.core.queries import SoftmaxGradient"),
        ("methods/fedgd.py", "from fedsofim.experiments import search_spaces"),
        ("deploy/node.py", "from fedsofim.cli.options import grouped"),
        ("deploy/node.py", "from fedsofim.deploy.flower.post import Post"),
        ("deploy/node.py", "import flwr"),
        ("errors.py", "from fedsofim.files import write_text"),
    ],
)
def test_an_import_that_points_up_breaks_the_contract(copy: Path, file: str, line: str):
    path = copy / "src" / "fedsofim" / file
    path.write_text(path.read_text() + f"\n\ndef _late():\n    {line}\n")
    done = contract(copy)
    assert done.returncode == 1, done.stdout
    assert "BROKEN" in done.stdout


def test_a_new_room_must_be_given_its_place(copy: Path):
    (copy / "src" / "fedsofim" / "attic.py").write_text('"""Nobody knows where this belongs."""\n')
    assert contract(copy).returncode == 1


def test_the_tree_can_be_read_off_ls():
    found = sorted(p.name for p in SOURCE.iterdir() if p.is_dir() and p.name != "__pycache__")
    assert found == sorted(ROOMS)
    loose = sorted(p.name for p in SOURCE.glob("*.py"))
    assert loose == [
        "__init__.py",
        "__main__.py",
        "errors.py",
        "extensions.py",
        "files.py",
        "formats.py",
        "interrupts.py",
        "progress.py",
        "protection.py",
        "settings.py",
        "tasks.py",
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_tests_mirror_the_rooms(room: str):
    assert list((ROOT / "tests" / room).rglob("test_*.py"))


def test_no_file_over_600_lines():
    lines = {str(p.relative_to(ROOT)): len(p.read_text(encoding="utf-8").splitlines()) for p in PYTHON}
    assert {path: n for path, n in lines.items() if n > 600} == {}


@pytest.mark.slow
def test_no_function_over_60_lines():
    lengths = {
        f"{path.relative_to(ROOT)}: {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in PYTHON
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    assert {name: n for name, n in lengths.items() if n > 60} == {}


def test_no_function_shadows_its_module():
    """Except in methods/ and models/, where a function of the file's own name is what makes it a method or a model."""
    shadows = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
        and node.name == path.stem
        and path.parent.name not in ("methods", "models")
    ]
    assert shadows == []
