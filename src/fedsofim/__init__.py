"""Differentially private federated optimization in which the client's own program says what it costs.

>>> import fedsofim as fs
>>> data = fs.load("digits")
>>> run = fs.train(fs.split(data, clients=4, alpha=None), fs.fedsofim(), fs.Budget(epsilon=5, delta=1e-5), rounds=20)
>>> f"{run.plan.releases} releases, epsilon {run.plan.epsilon:.4f}"
'20 releases, epsilon 5.0000'
"""

from fedsofim.data import Dataset, load
from fedsofim.data.partition import Split, by_owner, split
from fedsofim.errors import InputError, Refused
from fedsofim.methods import make
from fedsofim.methods.fedgd import fedgd
from fedsofim.methods.fedsofim import fedsofim
from fedsofim.models import Model, softmax_head
from fedsofim.plan import Plan, plan
from fedsofim.privacy import Budget, delta_of, epsilon_of, mu_of
from fedsofim.release import Facts, Private
from fedsofim.round import Method, OneGradient, Setup, server_method
from fedsofim.train import Run, train
from fedsofim.transforms import scale_by_sofim, sofim

__all__ = [
    "Budget",
    "Dataset",
    "Facts",
    "InputError",
    "Method",
    "Model",
    "OneGradient",
    "Plan",
    "Private",
    "Refused",
    "Run",
    "Setup",
    "Split",
    "by_owner",
    "delta_of",
    "epsilon_of",
    "fedgd",
    "fedsofim",
    "load",
    "make",
    "mu_of",
    "plan",
    "scale_by_sofim",
    "server_method",
    "sofim",
    "softmax_head",
    "split",
    "train",
]
