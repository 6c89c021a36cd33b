"""What can be said before a run: the paper's bounds and ours as functions of constants, and a plan from public numbers."""
