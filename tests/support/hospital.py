"""A hospital's table as hospitals have them: text, gaps, dates, decimal commas, ids; and a public schema for it."""

from datetime import date, timedelta
from pathlib import Path

import numpy as np

HEADER = "record_id;patient;age;sex;smoker;admitted;lab;ward;outcome"

SCHEMA = """
format = 1
[columns.record_id]
kind = "drop"
[columns.patient]
kind = "person"
[columns.age]
kind = "number"
range = [0, 120]
unit = "years"
missing = 50
[columns.sex]
kind = "category"
categories = ["f", "m"]
group = true
[columns.smoker]
kind = "boolean"
words = ["nein", "ja"]
missing = "nein"
[columns.admitted]
kind = "date"
format = "%d.%m.%Y"
range = [2020-01-01, 2024-12-31]
[columns.lab]
kind = "number"
range = [0, 20]
decimal = ","
missing = 5
[columns.ward]
kind = "category"
categories = ["Chirurgie", "Pädiatrie", "Innere"]
missing = "Innere"
[columns.outcome]
kind = "label"
classes = ["well", "ill"]
"""


def rows(count: int, seed: int = 0) -> list[str]:
    """Records: the ill are older, and their lab values higher."""
    random = np.random.default_rng(seed)
    out = []
    for k in range(count):
        ill = bool(random.integers(2))
        age = int(np.clip(random.normal(70 if ill else 40, 10), 1, 119))
        lab = f"{np.clip(random.normal(12 if ill else 6, 2), 0, 20):.2f}".replace(".", ",")
        cells = [
            str(1000 + k),
            f"P{seed}-{k // 2}",  # two records for each patient
            "NA" if random.random() < 0.1 else str(age),
            str(random.choice(["f", "m", "x"], p=[0.5, 0.45, 0.05])),
            str(random.choice(["ja", "nein", ""], p=[0.4, 0.5, 0.1])),
            (date(2020, 1, 1) + timedelta(days=int(random.integers(1800)))).strftime("%d.%m.%Y"),
            "" if random.random() < 0.1 else lab,
            str(random.choice(["Chirurgie", "Pädiatrie", "Innere", ""], p=[0.3, 0.3, 0.3, 0.1])),
            "ill" if ill else "well",
        ]
        out.append(";".join(cells))
    return out


def write_table(path: Path, count: int = 240, seed: int = 0, encoding: str = "latin-1") -> Path:
    path.write_text("\n".join([HEADER, *rows(count, seed)]) + "\n", encoding=encoding)
    return path


def write_schema(path: Path) -> Path:
    path.write_text(SCHEMA, encoding="utf-8")
    return path
