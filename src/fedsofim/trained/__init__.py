"""A trained model in use: predictions, the folder it is kept in, its card, and what it can be exported to."""

from fedsofim.trained.folder import load_model
from fedsofim.trained.model import Trained

__all__ = ["Trained", "load_model"]
