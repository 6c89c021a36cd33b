"""What a folder of runs tells of records of one's own: nothing that a guess at them could be held against."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsofim import InputError
from fedsofim.experiments.grid import Experiment
from fedsofim.experiments.grid_file import read_experiment
from fedsofim.experiments.reading import digest, read_datasets
from fedsofim.experiments.record_digests import KEY, digests_of, known_key
from fedsofim.experiments.rehearsal import rehearse
from fedsofim.experiments.report.folder import write_report
from fedsofim.experiments.runner import Conduct, points, run_experiment


@pytest.fixture(scope="module")
def one(small: Path) -> Experiment:
    found = read_experiment(small)
    return replace(found, entries=found.entries[:1], epsilons=(1.0,), seeds=(0,), rounds=2)


@pytest.fixture(scope="module")
def out(one: Experiment, small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own") / "out"
    assert run_experiment(one, folder, small.parent) == 1
    write_report(folder)
    return folder


def test_no_file_states_what_a_guess_at_a_record_can_be_held_against(one: Experiment, small: Path, out: Path):
    """Who knows all records but one label tries them all: neither the digest nor the run's id answers."""
    data = read_datasets(one.datasets, small.parent)
    (point,) = points(one, data)
    written = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert len(written) > 5
    for known in (digest(data["toy.npz"]), point.id):
        assert not [path for path, content in written.items() if known.encode() in content or known in path.name]
    key = (out / KEY).read_text().strip()
    assert [path.name for path, content in written.items() if key.encode() in content] == [KEY]
    assert (out / KEY).stat().st_mode & 0o077 == 0


def test_what_is_written_of_the_grid_is_no_count_of_labels(out: Path):
    """Each client's number of records is public; of which class they are is not."""
    grid = json.loads((out / "grid.json").read_text())
    (dealt,) = grid["partitions"]
    assert set(dealt) == {"dataset", "partition", "clients", "sizes"}
    assert not [p.name for p in out.rglob("*") if p.name.startswith("partition-")]
    assert "who holds how many of which class" in (out / "report.html").read_text()


def test_persons_have_no_number_of_records(one: Experiment, small: Path, tmp_path: Path):
    from fedsofim.experiments.runner import _dealt
    from fedsofim.experiments.whom import Whom

    (data,) = read_datasets(one.datasets, small.parent).values()
    dealt = _dealt(data, one.partitions[0], "iid", False, (Whom(), Whom("person", 3)))
    assert dealt["sizes"] is None and dealt["clients"] == 3
    public = _dealt(data, one.partitions[0], "iid", True, (Whom(),))
    assert np.sum(public["counts"]) == np.sum(public["sizes"])


def test_equal_records_are_recognised_in_their_folder_and_nowhere_else(one: Experiment, small: Path, out: Path):
    before = (out / "runs.jsonl").read_bytes()
    assert run_experiment(one, out, small.parent) == 0
    assert (out / "runs.jsonl").read_bytes() == before
    assert "nothing is left to do" in rehearse(one, out, small.parent, Conduct())
    data = read_datasets(one.datasets, small.parent)
    assert digests_of(data, [], known_key(out)) == digests_of(data, [], known_key(out))
    elsewhere = out.parent / "elsewhere"
    assert digests_of(data, [], known_key(elsewhere)) != digests_of(data, [], known_key(elsewhere))
    assert not elsewhere.exists()


def test_public_records_have_one_digest_everywhere(small: Path):
    data = read_datasets(("digits",))
    assert digests_of(data, [], b"k" * 32) == {"digits": digest(data["digits"])}


def test_rows_of_before_there_was_a_key_go_on_and_that_is_said(one: Experiment, small: Path, out: Path, tmp_path: Path):
    data, said = read_datasets(one.datasets, small.parent), []
    row = json.loads((out / "runs.jsonl").read_text())
    (point,) = points(one, data)
    row |= {"id": point.id, "digest": point.digest}
    (tmp_path / "runs.jsonl").write_text(json.dumps(row) + "\n")
    assert run_experiment(one, tmp_path, small.parent, Conduct(say=said.append)) == 0
    assert len(said) == 1 and "a digest of toy.npz without a key" in said[0]


def test_with_its_key_gone_a_folder_begins_anew_and_says_so(one: Experiment, small: Path, out: Path, tmp_path: Path):
    said = []
    (tmp_path / "runs.jsonl").write_bytes((out / "runs.jsonl").read_bytes())
    assert run_experiment(one, tmp_path, small.parent, Conduct(say=said.append)) == 1
    assert KEY in said[0] and "1 rows do not belong to these records" in said[0]


@pytest.mark.parametrize("text", ["", "xyz", "00" * 31])
def test_a_damaged_key_is_an_error(tmp_path: Path, text: str):
    (tmp_path / KEY).write_text(text)
    with pytest.raises(InputError, match=r"digest\.key: is damaged"):
        known_key(tmp_path)


def test_a_report_of_an_older_folder_forgets_what_it_told(tmp_path: Path):
    """Folders of version 1 have counts by class of everybody's records, and so have the reports made of them."""
    shutil.copytree(Path(__file__).parents[1] / "golden" / "runs-1", tmp_path, dirs_exist_ok=True)
    assert json.loads((tmp_path / "grid.json").read_text())["partitions"][0]["counts"]
    stale = [tmp_path / "tables" / f"partition-blobs-iid.{kind}" for kind in ("md", "tex", "csv")]
    stale.append(tmp_path / "figures" / "partition-blobs-iid.png")
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text("counts")
    write_report(tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith("partition-")]
    assert (tmp_path / "tables").is_dir()
