"""What comes back from nodes: sound uploads of all clients are averaged, everything else is rejected by name."""

import math

import numpy as np
import pytest

from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.server import step
from fedsofim.deploy.uploads import faults
from fedsofim.deploy.wire import Arrays
from fedsofim.errors import InputError
from nodes import ask_all


@pytest.fixture(scope="module")
def uploads(shared_nodes: list[Policy], now: JobState) -> dict[str, Arrays]:
    return ask_all(shared_nodes, now)


def test_sound_uploads_have_no_fault(now: JobState, uploads: dict[str, Arrays]):
    assert faults(now, uploads) == {}
    assert step(now, uploads).round == 1


def spoilt(upload: np.ndarray, value: float) -> np.ndarray:
    out = upload.copy()
    out[0, 1] = value
    return out


FAULTS = {
    "shape": lambda u: {"upload0": u[:-1]},
    "more dimensions": lambda u: {"upload0": u[None]},
    "scalar": lambda u: {"upload0": u[0, 0]},
    "float64": lambda u: {"upload0": u.astype(np.float64)},
    "integers": lambda u: {"upload0": u.astype(np.int32)},
    "byte order": lambda u: {"upload0": u.astype(">f4")},
    "text": lambda u: {"upload0": u.astype(str)},
    "NaN": lambda u: {"upload0": spoilt(u, math.nan)},
    "infinity": lambda u: {"upload0": spoilt(u, math.inf)},
    "-infinity": lambda u: {"upload0": spoilt(u, -math.inf)},
    "norm": lambda u: {"upload0": u * np.float32(1e6)},
    "huge norm": lambda u: {"upload0": np.full_like(u, 3e38)},
    "nothing": lambda u: {},
    "another name": lambda u: {"upload1": u},
    "one too many": lambda u: {"upload0": u, "upload1": u},
}


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("who", ["n0", "n2"])
def test_an_unsound_upload_is_rejected_by_name(now: JobState, uploads: dict[str, Arrays], kind: str, who: str):
    bad = uploads | {who: FAULTS[kind](uploads[who]["upload0"])}
    found = faults(now, bad)
    assert list(found) == [who]
    word = {"NaN": "NaN", "infinity": "infinity", "-infinity": "infinity", "norm": "norm", "huge norm": "norm"}
    assert word.get(kind, "expected") in found[who]
    with pytest.raises(InputError, match=who):
        step(now, bad)


def test_two_unsound_uploads_are_both_named(now: JobState, uploads: dict[str, Arrays]):
    bad = uploads | {who: FAULTS["NaN"](uploads[who]["upload0"]) for who in ("n0", "n1")}
    assert set(faults(now, bad)) == {"n0", "n1"}


@pytest.mark.parametrize("missing", [["n0"], ["n1", "n2"], ["n0", "n1", "n2"]])
def test_fewer_clients_are_never_averaged(now: JobState, uploads: dict[str, Arrays], missing: list[str]):
    with pytest.raises(InputError, match=missing[0]):
        step(now, {k: v for k, v in uploads.items() if k not in missing})


def test_a_stranger_is_never_averaged(now: JobState, uploads: dict[str, Arrays]):
    with pytest.raises(InputError):
        step(now, uploads | {"stranger": uploads["n0"]})
    with pytest.raises(InputError, match="n0"):
        step(now, {"stranger" if k == "n0" else k: v for k, v in uploads.items()})
