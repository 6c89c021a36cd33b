"""Comparisons: a grid of runs as data, how it is run and resumed, tuning, and the report people read."""
