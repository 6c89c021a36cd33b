"""The way in for strangers, from an installed wheel and outside the checkout: as a file, and as a package."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from commands import QUICKLY

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ("heavyball", "two_layers", "rings")
PACKAGE = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "strangers"
version = "1.0"

[project.entry-points."fedsofim.methods"]
heavyball = "strangers.heavyball:heavyball"

[project.entry-points."fedsofim.models"]
two_layers = "strangers.two_layers:two_layers"

[project.entry-points."fedsofim.datasets"]
rings = "strangers.rings:rings"
"""
EXPERIMENT = """
datasets = ["./rings.py"]
epsilons = [5, "no-privacy"]
seeds = [0]
rounds = 3
partitions = [{ kind = "iid", clients = 3 }]
model = "./two_layers.py"
[methods]
ours = { method = "fedgd" }
theirs = { method = "./heavyball.py", client_lr = 0.05 }
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that Python imports from: the project's wheel, and a stranger's package that offers all three."""
    folder = tmp_path_factory.mktemp("strangers")
    project = folder / "project"
    (project / "strangers").mkdir(parents=True)
    (project / "pyproject.toml").write_text(PACKAGE)
    (project / "strangers" / "__init__.py").touch()
    for name in EXAMPLES:
        shutil.copy(ROOT / "examples" / f"{name}.py", project / "strangers")
    for source in (ROOT, project):
        pip("wheel", "--wheel-dir", folder / "wheels", source)
    pip("install", "--target", folder / "site", *(folder / "wheels").glob("*.whl"))
    return folder / "site"


def pip(command: str, *args: object) -> None:
    alone = ["--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
    built = ["--no-build-isolation"] if command == "wheel" else []
    pure = os.environ | {"FEDSOFIM_WHEEL": "pure"}  # compiled passes are looked at by scripts/check_wheel.py
    subprocess.run([sys.executable, "-m", "pip", command, *alone, *built, *map(str, args)], check=True, env=pure)


COMMANDS = """
import fedsofim, json, sys
from fedsofim.cli import main
site, commands = sys.argv[1:]
assert site in fedsofim.__file__
for command in json.loads(commands):
    sys.argv = ["fedsofim", *command]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""


def fedsofim(site: Path, folder: Path, *commands: Sequence[object]) -> str:
    """Commands of the installed wheel, one after another in one process, in a folder of the stranger's own."""
    environment = {**os.environ, **QUICKLY, "PYTHONPATH": str(site)}
    words = json.dumps([[str(word) for word in command] for command in commands])
    asked = [sys.executable, "-c", COMMANDS, str(site), words]
    done = subprocess.run(asked, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the stranger works, with the three files."""
    for name in EXAMPLES:
        shutil.copy(ROOT / "examples" / f"{name}.py", tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_method_a_model_and_a_dataset_of_an_installed_package(site: Path, folder: Path):
    method, model, dataset = EXAMPLES
    args = ("--method", method, "--model", model, "--dataset", dataset, "--set", "local_steps=3", "--rounds", 4)
    answer = json.loads(fedsofim(site, folder, ["run", *args, "--clients", 3, "--epsilon", 8, "--json"]))
    assert (answer["method"], answer["dataset"]) == ("heavyball", "rings")
    assert answer["releases"] == 14  # three local steps in each of four rounds, and the two of the preparation
    assert answer["epsilon"] == pytest.approx(8)


@pytest.mark.slow
def test_the_same_as_files_in_an_experiment(site: Path, folder: Path, tmp_path_factory):
    (folder / "mine.toml").write_text(EXPERIMENT)
    elsewhere = tmp_path_factory.mktemp("elsewhere")  # files are found from the experiment's folder, not from here
    out = elsewhere / "out"
    compare = ["compare", folder / "mine.toml", "--out", out]
    said = fedsofim(site, elsewhere, compare, compare, ["report", out])
    assert said.index("4 runs done now") < said.index("0 runs done now")
    rows = [json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines()]
    assert {row["label"]: row["privacy"]["releases"] for row in rows} == {"ours": 3, "theirs": 6}
    assert {row["epsilon"] for row in rows} == {5.0, "no-privacy"}
    assert "no-privacy" in (out / "report.html").read_text()


@pytest.mark.slow
def test_what_is_installed_is_listed(site: Path, folder: Path):
    listed = {m["name"]: m for m in json.loads(fedsofim(site, folder, ["methods", "--json"]))}
    assert listed["heavyball"]["ledger"][0]["releases"] == 140
    assert listed["heavyball"]["memory"] == "1·d kept"
