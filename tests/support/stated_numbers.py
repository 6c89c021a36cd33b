# ruff: noqa: RUF001 - as the pages have them, Greek letters too
"""What pages state with decimals or in percent that nobody measured: settings, definitions, examples, arithmetic.

By page, each as the page has it, so that the same number elsewhere on the page is not excused by it.
"""

STATED: dict[str, tuple[str, ...]] = {
    "README.md": ("on 3.12 and 3.13 the wheel",),
    "docs/audit.md": ("(`--confidence`, 99 %)",),
    "docs/clipping.md": ("by 6 % of c at a million records", "m = 64/P^1.5", "γ = 1.1·(rows"),
    "docs/coordinator.md": ("`--evaluate-share` (0.05)",),
    "docs/explanation/accounting.md": (
        "| 0.1 | 51 |",
        "| 0.5 | 53 |",
        "5 % of mu²",
        "the other 95 %",
        "rates from 0.001 to 0.9",
        "(rate 0.001,",
    ),
    "docs/explanation/trust.md": ("√20, about 4.5 times",),
    "docs/licences.md": ("CC BY 4.0",),
    "docs/models.md": ("below 0.01 of the clip", "0.7 clips long"),
    "docs/mutation.md": ("fewer than 95 %",),
    "docs/paper.md": ("at a step of 0.1", "DP-FedGD (lr 0.1)", "not at 0.5 and 1", "DP-FedGD at 0.5, 5 and 10"),
    "docs/results/README.md": (
        "not at 0.5 and 1",
        "DP-FedYogi at 0.5,",
        "tuned DP-FedGD at 0.5, 5 and 10",
        "step of 0.1; 0.22 is better",
        "at 0.5 and 5.",
        "reaches 95 % of tuned",
        "at most 0.5\npoints apart",
        "step sizes (2.5 to 8)",
        "DP-FedGD at 0.5, 5 and 10 and ahead",
        "`published_noise` as 0.5",
        "share 0.1",
        "v = 0.25",
    ),
    "docs/results/curvature-fashion/README.md": ("rho 0.01 and 0.09",),
    "docs/stability.md": ("Until 1.0", "(0.2, 0.3, ...)"),
    "docs/tasks.md": ("87 % says nothing where 87 % are of one class",),
    "docs/theory.md": (
        "ρ = 0.5 to 10",
        "β = 0.8, ρ = 0.5",
        "β = 0.9",
        "at a = 0.05",
        "at a = 0.5",
        "at a = 1.99",
        "step 0.1 and noise 0.05",
        "η = 0.8, ρ = 0.5",
        "(10 % of mu²)",
    ),
}
