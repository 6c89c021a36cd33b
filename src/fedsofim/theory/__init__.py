"""What can be said before a run: the paper's bounds and ours, from constants, and a plan, from public numbers."""
