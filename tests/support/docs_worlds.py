"""What pages speak of: small files and names, so that their code can be run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fedsofim as fs
from fedsofim.data.public_statistics import public_stats, save_stats

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _records(count: int = 60, features: int = 3) -> tuple[np.ndarray, np.ndarray]:
    dice = np.random.default_rng(0)
    y = np.arange(count) % 2
    return (dice.normal(size=(count, features)) + 2 * y[:, None]).astype(np.float32), y


def _arrays(path: Path) -> None:
    x, y = _records()
    np.savez(path, x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])


def _table(path: Path) -> None:
    x, y = _records()
    lines = [f"{a:.3f},{b:.3f},{('cat', 'dog')[label]}" for (a, b, _), label in zip(x, y, strict=True)]
    path.write_text("\n".join(["weight,height,kind", *lines]) + "\n")


_SCHEMA = "".join(f'[columns.{name}]\nkind = "number"\nrange = [-9, 9]\n' for name in ("weight", "height"))


def bring_your_own(folder: Path) -> dict[str, Any]:
    """docs/data.md: every form that data comes in."""
    torch = pytest.importorskip("torch", reason="needs torch: pip install 'fedsofim[torch]'")
    pandas = pytest.importorskip("pandas")
    for name in ("mine.npz", "cifar10.npz", "cifar10-resnet20.npz"):
        _arrays(folder / name)
    _table(folder / "mine.csv")
    (folder / "schema.toml").write_text(f'{_SCHEMA}[columns.kind]\nkind = "label"\nclasses = ["cat", "dog"]\n')
    (folder / "rings.py").write_text((EXAMPLES / "rings.py").read_text())
    (folder / "hospitals").mkdir()
    for name in ("berlin", "lyon"):
        _arrays(folder / "hospitals" / f"{name}.npz")
    _photos(folder / "photos")
    x, y = _records()
    save_stats(folder / "cifar10.stats.npz", public_stats(x))
    frame = pandas.DataFrame({"weight": x[:, 0], "height": x[:, 1], "kind": np.where(y, "cat", "dog")})
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 4))
    sets = {"x_train": x, "y_train": y, "x_test": x, "y_test": y}
    return {"x": x, "y": y, "frame": frame, "my_torch_module": module, **sets}


def _photos(folder: Path) -> None:
    dice = np.random.default_rng(0)
    for kind in ("cat", "dog"):
        (folder / kind).mkdir(parents=True)
        for i in range(6):
            Image.fromarray(dice.integers(255, size=(32, 32, 3), dtype=np.uint8)).save(folder / kind / f"{i}.png")


def a_number(folder: Path) -> dict[str, Any]:
    """docs/tasks.md: a table whose label is a number."""
    x, _ = _records(300)
    lines = [f"{a:.3f},{b:.3f},{100 + 20 * a:.1f}" for a, b, _ in x]
    (folder / "diabetes.csv").write_text("\n".join(["age,bmi,target", *lines]) + "\n")
    return {}


def visits(folder: Path) -> dict[str, Any]:
    """docs/protection.md: records that say whose they are."""
    x, y = _records(600)
    rows = [f"P{i // 3},{a:.3f},{b:.3f},{'ab'[k]}" for i, ((a, b, _), k) in enumerate(zip(x, y, strict=True))]
    (folder / "visits.csv").write_text("\n".join(["patient,weight,height,label", *rows]) + "\n")
    return {"fs": fs}


def a_hospitals_model(folder: Path) -> dict[str, Any]:
    """docs/hospital.md: a trained model in a folder, and a frame of new records."""
    pandas = pytest.importorskip("pandas")
    for needed in ("sklearn", "onnx"):
        pytest.importorskip(needed, reason=f"needs {needed}")
    _table(folder / "mine.csv")
    (folder / "schema.toml").write_text(f'{_SCHEMA}[columns.kind]\nkind = "label"\nclasses = ["cat", "dog"]\n')
    split = fs.split(fs.load("mine.csv", schema="schema.toml"), clients=2, iid=True)
    fs.train(split, fs.fedgd(), fs.Budget(5), rounds=2, recipe="paper").save("model")
    return {"frame": pandas.DataFrame({"weight": [1.0, 2.0], "height": [0.5, 2.5]})}


def torch_is_there(folder: Path) -> dict[str, Any]:
    """docs/torch.md."""
    pytest.importorskip("torch", reason="needs torch: pip install 'fedsofim[torch]'")
    return {}


WORLDS = {
    "docs/data.md": bring_your_own,
    "docs/tasks.md": a_number,
    "docs/protection.md": visits,
    "docs/hospital.md": a_hospitals_model,
    "docs/torch.md": torch_is_there,
}
