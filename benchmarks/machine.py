"""What the numbers were measured on."""

import importlib.metadata
import os
import platform
from pathlib import Path


def describe() -> dict[str, str]:
    """Cores, processor, memory, versions, and how busy the machine was when the run began."""
    packages = ("jax", "jaxlib", "numpy", "optax")
    return {
        "processor": f"{processor()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages),
        "load at start": " ".join(f"{load:.2f}" for load in os.getloadavg()) + " (1, 5 and 15 minutes)",
    }


def processor() -> str:
    """The processor's name where Linux tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"
