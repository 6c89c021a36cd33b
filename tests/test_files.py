"""Files are whole or absent, alone and together, and an error names the file that it is about."""

import errno
from pathlib import Path

import pytest

import fedsofim as fs
from commands import in_process
from fedsofim import files
from fedsofim.errors import InputError
from fedsofim.experiments.journal import append
from fedsofim.files import as_folder, as_path, naming, together, write_text
from toy import make_toy


def full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_files_are_written_together_or_not_at_all(tmp_path: Path):
    (tmp_path / "a").write_text("before")
    with pytest.raises(OSError), together(tmp_path) as part:
        write_text(part / "a", "after")
        full_disk()
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a", "before")]
    with together(tmp_path) as part:
        write_text(part / "a", "after")
        write_text(part / "b", "new")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"a": "after", "b": "new"}


def test_an_error_of_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(OSError) as caught, naming(tmp_path / "x"):
        full_disk()
    assert caught.value.filename == str(tmp_path / "x") and caught.value.errno == errno.ENOSPC
    monkeypatch.setattr(files.os, "fsync", full_disk)
    for write in (lambda: write_text(tmp_path / "y", "text"), lambda: append(tmp_path / "runs.jsonl", {})):
        with pytest.raises(OSError, match="No space left") as caught:
            write()
        assert caught.value.filename


def test_a_run_whose_last_file_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = fs.train(make_toy(), fs.fedgd(), fs.Budget(1), 1, recipe="paper")
    with pytest.raises(OSError):
        run.save(tmp_path / "m", also={"curve.png": full_disk})
    assert list((tmp_path / "m").iterdir()) == []
    run.save(tmp_path / "m", also={"curve.png": run.plot})
    assert {p.name for p in (tmp_path / "m").iterdir()} == {
        "model.safetensors",
        "model.json",
        "result.json",
        "curve.png",
    }


def test_the_command_line_names_the_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files.os, "fsync", full_disk)
    done = in_process("run", "--dataset", "digits", "--clients", 2, "--rounds", 1, "--out", tmp_path / "m")
    assert done.returncode == 1 and "error: : " not in done.stderr
    assert "model.safetensors: No space left on device" in done.stderr


def test_what_is_no_path_or_no_folder_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file; expected a folder"):
        as_folder(tmp_path / "file")
    for wrong in ("a\nb", 3, None, ["x"]):
        with pytest.raises(InputError, match="expected a path"):
            as_path("the schema", wrong)
