"""Programs that leak, each written the way a mistake is written. The audit must refuse every one, by name."""

import pytest

from cheats import CHEATS, honest
from fedsofim.errors import Refused
from leaks import priced


@pytest.mark.parametrize("cheat, message", CHEATS, ids=lambda v: getattr(v, "__name__", ""))
def test_cheat_is_refused(cheat, message):
    with pytest.raises(Refused, match=message):
        priced(cheat)


def test_the_honest_one_is_not():
    """The refusals above mean something only if the same frame passes without the leak."""
    assert priced(honest).releases == 5
