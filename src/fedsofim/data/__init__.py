"""Data: shipped sets, files of the user's own, image sets and frozen extractors.

>>> load("digits").classes
10
"""

from fedsofim.data.dataset import Dataset
from fedsofim.data.loading import load, names

__all__ = ["Dataset", "load", "names"]
