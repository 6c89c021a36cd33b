"""No run is planned where XLA computes as if there were no NaN: then one record moves a clipped sum by a thousand."""

import os
from pathlib import Path

import pytest
from jax._src import compiler

from commands import run
from fedsofim.core.arithmetic import check_arithmetic
from fedsofim.deploy.node import answer
from fedsofim.errors import Refused
from leaks import priced
from nodes import X, Y, asked, charges, make_node

FAST = "--xla_cpu_enable_fast_math=true --xla_cpu_fast_math_honor_nans=false --xla_cpu_fast_math_honor_infs=false"
REFUSED = "XLA is told to use fast math"


def privacy(flags: str):
    return run("privacy", "--method", "fedgd", "--epsilon", 1, "--rounds", 3, env=os.environ | {"XLA_FLAGS": flags})


def test_a_process_with_fast_math_plans_no_run():
    done = privacy(FAST)
    assert done.returncode == 2 and REFUSED in done.stderr and "Traceback" not in done.stderr


def test_a_process_whose_flags_are_in_a_file_does_not_either(tmp_path: Path):
    (tmp_path / "flags").write_text(FAST)
    assert REFUSED in privacy(str(tmp_path / "flags")).stderr


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch):
    """As if XLA had been started with it."""
    as_before = compiler.get_compile_options

    def told(*args, **kwargs):
        options = as_before(*args, **kwargs)
        options.executable_build_options.debug_options.xla_cpu_enable_fast_math = True
        return options

    check_arithmetic()
    monkeypatch.setattr(compiler, "get_compile_options", told)


def test_it_is_looked_at_before_anything_is_run(fast):
    with pytest.raises(Refused, match=REFUSED):
        priced(lambda door, params, state, memory: (door.gradient(params), memory))


def test_a_node_with_fast_math_answers_nothing(tmp_path: Path, fast):
    policy = make_node(tmp_path / "n", X, Y)
    with pytest.raises(Refused, match=REFUSED):
        answer(policy, asked([policy], rounds=17))
    assert charges(policy) == 0
