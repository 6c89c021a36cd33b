"""DP-FedSOFIM: a second-order server step at O(d) from the momentum of already private averages. T releases.

direction="momentum" is the form behind the published numbers; "gradient" is the paper's Algorithm 1.
"""

from fedsofim.round import Method, server_method
from fedsofim.transforms import Direction, Variant, WarmupKind, schedule, sofim


def fedsofim(
    lr: float = 0.8,
    rho: float = 0.5,
    beta: float = 0.9,
    bias_correction: bool = False,
    warmup: int = 0,
    direction: Direction = "momentum",
    weight_decay: float = 5e-4,
    warmup_kind: WarmupKind = "hard",
    variant: Variant = "full",
    lr_schedule: str = "constant",
) -> Method:
    """Rank-one Fisher proxy of the private averages, inverted by Sherman-Morrison."""
    settings = dict(rho=rho, beta=beta, direction=direction, bias_correction=bias_correction, warmup=warmup,
                    warmup_kind=warmup_kind, variant=variant)
    schedule(lr_schedule, lr, 1)  # an unknown name is an error now, not inside a compiled run
    return server_method("fedsofim", lambda facts: sofim(schedule(lr_schedule, lr, facts.rounds), weight_decay, **settings))


#: Settings behind the published ResNet-20 tables, by epsilon.
PRESETS = {
    "paper-resnet20": {
        0.5: dict(lr=0.2, rho=0.5, beta=0.95, bias_correction=True, warmup=10),
        1.0: dict(lr=3.0, rho=10.0, beta=0.8, bias_correction=True, warmup=0),
        5.0: dict(lr=0.8, rho=0.5, beta=0.9, bias_correction=False, warmup=0),
        10.0: dict(lr=0.8, rho=0.5, beta=0.9, bias_correction=False, warmup=0),
    }
}
