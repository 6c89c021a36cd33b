"""Noise of the phases of a preparation: of each its own."""

import math
from itertools import combinations

import numpy as np
import pytest

from diary import silent
from fedsofim.core.budget import Budget
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.phase import Phase
from fedsofim.core.preparation import ColumnScales
from fedsofim.methods import make
from fedsofim.simulation.simulator import ask_once, keys, start_parameters
from fedsofim.simulation.training import plan_for

MANY = 3000


@pytest.mark.slow
def test_noise_of_scales_and_moments_is_unrelated():
    """Silent records: what is released is noise. Whoever knows one phase's must not know another's."""
    data = silent((3, 4), MANY)
    plan = plan_for(data, make("fedgd"), Budget(1.0), 2, preparation=(ColumnScales(0.1), FeatureMoments(share=0.1)))
    first, key = keys(0)
    params = start_parameters(plan, data, first)
    released = {phase: ask_once(plan, phase, data, params, key) for phase in (Phase.SCALES, Phase.MOMENTS)}
    named = {f"{phase} {name}": np.asarray(v) for phase, means in released.items() for name, v in means.items()}
    pieces = {name: v for name, v in named.items() if v.shape == (MANY,)}
    assert sorted(pieces) == ["moments first", "moments second", "scales size", "scales there"]
    for a, b in combinations(pieces, 2):
        assert abs(np.corrcoef(pieces[a], pieces[b])[0, 1]) < 7 / math.sqrt(MANY), (a, b)
