"""Every way found to draw one noise twice: refused, since the difference of two such releases is the records' own."""

from dataclasses import replace

import jax
import pytest

from fedsofim.errors import InputError, Refused
from leaks import priced
from reuses import REUSES, honest_scans, step


@pytest.mark.parametrize("cheat, message", REUSES, ids=lambda v: getattr(v, "__name__", ""))
def test_reused_noise_is_refused(cheat, message):
    with pytest.raises(Refused, match=message):
        priced(cheat)


def test_honest_loops_are_counted():
    """3 steps of (1 + 2) releases, 4 more, and one: 14 in each of 5 rounds."""
    assert priced(honest_scans).releases == 14 * 5


@pytest.mark.parametrize("length", [0, -1, 2.5, True])
def test_a_scan_needs_steps(length):
    with pytest.raises(InputError, match="number of steps"):
        priced(lambda door, params, state, memory: (door.scan(step, params, length), memory))


def test_a_release_in_a_loop_of_no_steps_is_refused():
    def client(door, params, state, memory):
        keys = jax.random.split(jax.random.fold_in(door._key, 0), 0)
        body = replace(door, _sites=[None])
        return jax.lax.scan(lambda t, k: (step(replace(body, _key=k), t), None), params, keys)[0], memory

    with pytest.raises(Refused, match="loop of no steps"):
        priced(client)
