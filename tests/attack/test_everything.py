"""The table of everything: all that must be attacked is in it, and a row that is not as it should be is told."""

import pytest

from fedsofim.attack.broken import BROKEN, broken_engine
from fedsofim.attack.everything import FORGETFUL, Row, attack_all, rows
from fedsofim.attack.pictures import draw_all
from fedsofim.attack.setting import Setting, honest
from fedsofim.attack.verdicts import attack
from fedsofim.core.budget import Budget
from fedsofim.methods import make

PLAIN = Setting(method=make("fedgd"), budget=Budget(5.0), rounds=2)
RIGHT = Row("fedgd", lambda: attack(honest(PLAIN), pairs=400))
WRONG = Row("no-clipping", lambda: attack(broken_engine("no-clipping", PLAIN), pairs=400), broken=True)


def test_every_kind_of_mechanism_and_every_broken_engine_has_its_row():
    table = rows(Budget(1.0))
    names = " ".join(row.what for row in table if not row.broken)
    for kind in (
        "fedgd", "fedsofim", "fedavg", "scaffold", "adafedprox", "covariance", "moments", "tree", "diagonal", "sampled",
        "node", "secure sum", "one training",
    ):  # fmt: skip
        assert kind in names
    assert [row.what for row in table if row.broken] == [*BROKEN, FORGETFUL]


@pytest.mark.slow
def test_rows_are_judged_by_what_they_should_be(tmp_path):
    lines = list(attack_all([RIGHT, WRONG, Row("not caught", RIGHT.run, broken=True)]))
    assert [line.as_it_should for line in lines] == [True, True, False]
    assert [line.verdict.what for line in lines] == ["fedgd", "no-clipping", "not caught"]
    draw_all(lines, tmp_path / "all.png")
    assert (tmp_path / "all.png").stat().st_size > 10_000
