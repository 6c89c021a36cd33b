"""Differentially private federated optimization in which the client's own program says what it costs.

>>> import fedsofim as fs
>>> data = fs.load("digits")
>>> run = fs.train(fs.split(data, clients=4, iid=True), budget=fs.Budget(epsilon=5, delta=1e-5))
>>> f"{run.plan.releases} releases, epsilon {run.plan.epsilon:.4f}"
'102 releases, epsilon 5.0000'
"""

import fedsofim.interrupts  # first, since it heeds Ctrl-C while all that follows is imported

# isort: split
from importlib.metadata import version

from fedsofim.core.budget import NO_PRIVACY, Budget
from fedsofim.core.budgets import Budgets
from fedsofim.core.clip_search import adaptive_clip
from fedsofim.core.door import Door, Facts
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.gaussian import delta_of, epsilon_of, mu_of
from fedsofim.core.method import Method, OneGradient, Setup, server_method
from fedsofim.core.models import Model, linear, softmax_head
from fedsofim.core.plan import Plan, make_plan
from fedsofim.core.preparation import Centred, ColumnScales, UnitNorm, Whitened
from fedsofim.data import Dataset, load
from fedsofim.data.partition import Split, by_owner, split
from fedsofim.data.schema import Schema, read_schema
from fedsofim.errors import DataWarning, InputError, Refused
from fedsofim.methods import make
from fedsofim.methods._curvature import scale_by_kronecker, scale_by_rank_k
from fedsofim.methods._sofim import scale_by_sofim, sofim
from fedsofim.methods.adafedprox import adafedprox
from fedsofim.methods.fedadam import fedadam
from fedsofim.methods.fedavg import fedavg
from fedsofim.methods.fedfc import fedfc
from fedsofim.methods.fedgd import fedgd
from fedsofim.methods.fedsofim import fedsofim
from fedsofim.methods.fedyogi import fedyogi
from fedsofim.methods.ftrl import ftrl
from fedsofim.methods.scaffold import scaffold
from fedsofim.models.adapters import from_equinox, from_flax, from_keras, from_torch
from fedsofim.models.cnn import cnn
from fedsofim.models.mlp import mlp
from fedsofim.models.parts import frozen, low_rank
from fedsofim.progress import Progress, progress_bar
from fedsofim.simulation.run import Run
from fedsofim.simulation.training import train
from fedsofim.tasks import Task
from fedsofim.trained import Trained, load_model

__version__ = version("fedsofim")

__all__ = [
    "NO_PRIVACY",
    "Budget",
    "Budgets",
    "Centred",
    "ColumnScales",
    "DataWarning",
    "Dataset",
    "Door",
    "Facts",
    "FeatureMoments",
    "InputError",
    "Method",
    "Model",
    "OneGradient",
    "Plan",
    "Progress",
    "Refused",
    "Run",
    "Schema",
    "Setup",
    "Split",
    "Task",
    "Trained",
    "UnitNorm",
    "Whitened",
    "__version__",
    "adafedprox",
    "adaptive_clip",
    "by_owner",
    "cnn",
    "delta_of",
    "epsilon_of",
    "fedadam",
    "fedavg",
    "fedfc",
    "fedgd",
    "fedsofim",
    "fedyogi",
    "from_equinox",
    "from_flax",
    "from_keras",
    "from_torch",
    "frozen",
    "ftrl",
    "linear",
    "load",
    "load_model",
    "low_rank",
    "make",
    "make_plan",
    "mlp",
    "mu_of",
    "progress_bar",
    "read_schema",
    "scaffold",
    "scale_by_kronecker",
    "scale_by_rank_k",
    "scale_by_sofim",
    "server_method",
    "sofim",
    "softmax_head",
    "split",
    "train",
]
