"""The paper's protocol: records as they come, clip 10, every client alike, a random start, 70 rounds."""

from fedsofim.recipes.recipe import Choices, Situation


def published(situation: Situation | None = None) -> Choices:
    """The same for everybody."""
    return Choices(
        recipe="paper",
        method="fedsofim",
        settings={},
        rounds=70,
        clip=10.0,
        weights="uniform",
        start=0.5,
        why=(("all of it", "the paper's protocol"),),
    )
