"""Put one real file of each format into tests/golden, as this program writes it, with what is in it (facts.json).

    python scripts/golden.py        after a version was raised in src/fedsofim/formats.py

What is there already stays as it is, for ever: the program of its version wrote it. So raising a version adds a folder
beside the old one, and tests/test_golden.py holds today's readers to both.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        os.environ["FEDSOFIM_STATE"] = str(Path(name) / "state")
        import golden

        golden.write_all(Path(name) / "work", Path(name) / "made")
        for made in sorted((Path(name) / "made").iterdir()):
            kept = golden.FOLDER / made.name
            if kept.exists():
                print(f"{kept.relative_to(ROOT)}: is there; left as it is")
                continue
            (made / "facts.json").write_text(json.dumps(golden.facts_of(made), indent=1) + "\n")
            shutil.copytree(made, kept)
            print(f"{kept.relative_to(ROOT)}: new")


if __name__ == "__main__":
    main()
