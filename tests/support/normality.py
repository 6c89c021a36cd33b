"""Is this noise of the size it should have?"""

from typing import Any

from scipy import stats


def accepts(sample: Any, std: float) -> bool:
    """A two-sided Kolmogorov-Smirnov test at 1 %: is this noise N(0, std²)?"""
    return bool(stats.kstest(sample / std, "norm").pvalue > 0.01)
