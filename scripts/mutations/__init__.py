"""Bugs planted one at a time in a copy of the tree: what `scripts/mutate.py` is made of."""
