"""Recipes: all choices of a run that are not the data's and not the budget's, made from public numbers."""

from fedsofim.recipes.recipe import Choices, Situation, choose, names

__all__ = ["Choices", "Situation", "choose", "names"]
