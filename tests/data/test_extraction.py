"""Extraction: kept, continued after kill -9, and never mistaken for that of other images."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedsofim.data import extraction as module
from fedsofim.data import load
from fedsofim.data.extraction import Extractor, extract, histograms
from fedsofim.data.images import Images
from fedsofim.errors import InputError


def pictures(count: int = 40, seed: int = 0) -> Images:
    images = np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    pair = (images, np.arange(count) % 2)
    return Images.of("toy", {"train": pair, "test": pair}, {"source": "made up"})


class Counting:
    """An extractor that counts the images it has seen."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, images: np.ndarray) -> np.ndarray:
        self.seen += len(images)
        return images.reshape(len(images), -1)[:, :3].astype(np.float32)


def test_writes_what_load_reads(tmp_path: Path) -> None:
    data = load(extract(pictures(), histograms(), tmp_path / "f.npz"))
    assert data.features == 80 and len(data.x_train) == len(data.x_test) == 40
    assert data.notes["features"] == "histograms, frozen, one record at a time"
    assert data.notes["source"] == "made up"
    assert [file.name for file in tmp_path.iterdir()] == ["f.npz"]


def test_repeats_nothing_unless_images_or_extractor_change(tmp_path: Path) -> None:
    count = Counting()
    for _ in range(2):
        extract(pictures(), Extractor("count", b"1", count), tmp_path / "f.npz")
    assert count.seen == 80
    extract(pictures(seed=1), Extractor("count", b"1", count), tmp_path / "f.npz")
    assert count.seen == 160
    extract(pictures(seed=1), Extractor("count", b"2", count), tmp_path / "f.npz")
    assert count.seen == 240


def test_batch_size_changes_nothing(tmp_path: Path) -> None:
    files = [extract(pictures(), histograms(), tmp_path / f"{b}.npz", batch=b) for b in (1, 7, 64)]
    one, seven, all_at_once = (load(file).x_train for file in files)
    assert np.array_equal(one, seven) and np.array_equal(one, all_at_once)


#: Extracts five chunks of one batch each; the batch of the given number never ends.
EXTRACT = """
import sys, threading
import numpy as np
from pathlib import Path
from fedsofim.data import extraction as module
from fedsofim.data.images import Images
images = np.arange(40 * 8 * 8 * 3, dtype=np.uint32).astype(np.uint8).reshape(40, 8, 8, 3)
module.CHUNK = 8
endless, begun = int(sys.argv[2]), 0
def run(batch):
    global begun
    begun += 1
    print("batch", begun, flush=True)
    if begun == endless:
        threading.Event().wait()
    return batch.reshape(len(batch), -1)[:, :3].astype(np.float32)
module.extract(Images.of("t", {"train": (images, np.arange(40) % 2)}), module.Extractor("mine", b"", run),
               Path(sys.argv[1]), batch=8)
"""


@pytest.mark.slow
def test_continues_after_kill_9(tmp_path: Path) -> None:
    out = tmp_path / "f.npz"
    first = subprocess.Popen([sys.executable, "-c", EXTRACT, str(out), "3"], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    begun = [first.stdout.readline().strip() for _ in range(3)]  # an empty line if it died
    first.kill()
    first.communicate()
    assert begun == ["batch 1", "batch 2", "batch 3"] and first.returncode == -signal.SIGKILL
    assert not out.exists()
    again = subprocess.run([sys.executable, "-c", EXTRACT, str(out), "0"], capture_output=True, text=True, check=True)
    assert again.stdout.count("batch") == 3  # of 5: two were kept
    with np.load(out) as stored:
        whole = np.arange(40 * 192, dtype=np.uint32).astype(np.uint8).reshape(40, 192)[:, :3]
        assert np.array_equal(stored["x_train"], whole)


def test_bad_requests(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in .npz"):
        extract(pictures(), histograms(), tmp_path / "f.csv")
    with pytest.raises(InputError, match="there is no folder"):
        extract(pictures(), histograms(), tmp_path / "absent" / "f.npz")
    with pytest.raises(InputError, match="batch is 0"):
        extract(pictures(), histograms(), tmp_path / "f.npz", batch=0)
    with pytest.raises(InputError, match=r"gave shape \(40,\)"):
        extract(pictures(), Extractor("flat", b"", lambda x: np.zeros(len(x))), tmp_path / "f.npz")
    with pytest.raises(InputError, match="NaN"):
        extract(pictures(), Extractor("nan", b"", lambda x: np.full((len(x), 2), np.nan)), tmp_path / "f.npz")


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "fedsofim.data.backbones", raising=False)
    with pytest.raises(InputError, match=r"pip install 'fedsofim\[torch\]'"):
        module.extractor("resnet20")
