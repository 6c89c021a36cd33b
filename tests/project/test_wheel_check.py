"""The check of the wheel: its slice of the tests has something of every room, and it never passes over the network."""

import shutil
from pathlib import Path

import pytest
from check_wheel import ONCE, ROOMS, SLICE, SUMS, network_cut

ROOT = Path(__file__).resolve().parents[2]


def test_every_room_has_tests_that_run_against_the_wheel():
    rooms = {p.name for p in (ROOT / "src" / "fedsofim").iterdir() if (p / "__init__.py").exists()}
    assert rooms == set(ROOMS) | {"native"}  # whose tests are run once for every variant
    missing = [name for name in (*SLICE, *ONCE, *SUMS) if not (ROOT / name).is_file()]
    assert not missing and len(set(SLICE)) == len(SLICE)


@pytest.mark.parametrize("tool", [None, "/bin/false"])
def test_without_a_way_to_cut_the_network_it_ends_unless_that_is_allowed(tool: str | None, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: tool)
    with pytest.raises(SystemExit, match="--network-allowed"):
        network_cut(allowed=False)
    assert network_cut(allowed=True) == []


def test_where_it_can_be_cut_it_is_even_if_it_need_not_be(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/true")
    assert network_cut(allowed=True) == network_cut(allowed=False) == ["/bin/true", "-n"]


def test_ci_cuts_the_network_and_runs_the_demo():
    ci = (ROOT / ".ci" / "run").read_text()
    assert "check_wheel.py --demo" in ci and "--network-allowed" not in ci
