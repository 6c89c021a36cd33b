"""All clients of a run at once, on this machine: simulator, sweeps of settings, and `train`."""
