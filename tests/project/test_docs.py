"""Code shown to readers runs: doctests, the method in CONTRIBUTING, the plain-loop example."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import fedsofim
from fedsofim import Budget, InputError, Method, Refused, train
from toy import make_toy

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(m.name for m in pkgutil.walk_packages(fedsofim.__path__, "fedsofim."))


@pytest.mark.parametrize("name", ["fedsofim", *MODULES])
def test_doctests(name):
    try:
        module = importlib.import_module(name)
    except (ModuleNotFoundError, InputError) as missing:
        pytest.skip(f"needs an optional package: {missing}")
    with jax.enable_x64(False):
        assert doctest.testmod(module).failed == 0


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_method_in_contributing_is_calibrated_and_runs():
    code = blocks("CONTRIBUTING.md")[0]
    assert len(code.splitlines()) < 40
    space: dict = {}
    exec(code, space)
    run = train(make_toy(), space["heavyball"](), Budget(20.0), rounds=10, clip=2.0)
    assert run.plan.releases == 20
    assert run.plan.epsilon == pytest.approx(20.0)


def test_the_leaky_one_is_refused_with_the_message_shown():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    space: dict = {"jnp": jnp}
    exec(blocks("CONTRIBUTING.md")[1], space)
    method = Method("leaky", space["leaky"], lambda mean, state, params, facts: (params, state))
    with pytest.raises(Refused) as refused:
        train(make_toy(), method, Budget(1.0), rounds=2)
    shown = " ".join(line.lstrip("> ") for line in page.splitlines() if line.startswith("> "))
    assert str(refused.value) == shown


def test_readme_python_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("README.md")
    with jax.enable_x64(False):
        exec(code.replace('"fashion"', '"digits"').replace("rounds=70", "rounds=5"), {})


def test_plain_loop_example_runs():
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "plain_loop.py"], capture_output=True, text=True, check=True
    )
    assert "DP-FedSOFIM" in done.stdout
