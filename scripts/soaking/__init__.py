"""A federation of real processes under faults, for `scripts/soak.py`."""
