"""Generated client programs through the audit: none that leaks is accepted, none that is honest is refused.

The long run is `scripts/fuzz.py`; what it found is in docs/fuzzing.md.
"""

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from fuzz_generator import Drawn, program
from fuzz_judge import judge
from fuzz_report import WRONG, line_of

PROGRAMS = range(1, 201)  # compiling for the first forty is half of what they cost


@pytest.mark.slow
def test_programs_by_number():
    """The first programs of a seed that the long run does not use; each wrong one is shown cut down."""
    wrong = [line for number in PROGRAMS if (line := line_of(seed=1, number=number)).fate in WRONG]
    assert not wrong, "\n".join(f"{line.fate}: {line.why}\n  {line.shrunk}\n  {line.text}" for line in wrong)


@pytest.mark.slow
@settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(st.data(), st.integers(0, 2))
def test_programs_by_hypothesis(data, planted):
    """The same with hypothesis choosing, which tries the simplest first and shrinks what fails."""
    tree = program(Drawn(data.draw), planted=planted)
    outcome = judge(tree)
    note(f"{tree}\n{outcome}")
    assert outcome.fate not in WRONG
