"""Methods as values: equal settings give one object, so that its runs share one compiled program."""

import pytest

from fedsofim.errors import InputError
from fedsofim.methods.fedsofim import fedsofim


def test_equal_settings_are_one_method():
    assert fedsofim(lr=0.5) is fedsofim(lr=0.5)
    assert fedsofim(lr=0.5) is not fedsofim(lr=0.25)
    with pytest.raises(InputError):
        fedsofim(lr=-1.0)
