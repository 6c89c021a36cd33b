"""Recipes: all choices of a run that are not the data's and not the budget's, made from public numbers."""

from fedsofim.recipes.recipe import Choices, Situation, by_hand, choose, names, settings_in

__all__ = ["Choices", "Situation", "by_hand", "choose", "names", "settings_in"]
