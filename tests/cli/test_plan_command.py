"""`fedsofim plan` as a user types it: public numbers in, an outlook out, no record read."""

import builtins
from pathlib import Path

import pytest

import fedsofim.data
import fedsofim.data.loading
from fedsofim.core.budget import Budget

SMALL = ("plan", "--clients", 5, "--records", 300, "--features", 16, "--classes", 3, "--epsilon", 2)


def test_the_answer_is_one_json_object(asked):
    found = asked(*SMALL)
    assert [m["trust"] for m in found["modes"]] == ["local", "secure-sum"]
    for mode in found["modes"]:
        assert mode["epsilon"] <= 2 and mode["epsilon"] == pytest.approx(2, abs=1e-6)  # the ledger's
        assert mode["noise_in_the_buffer"] < mode["noise_of_a_round"]
        assert mode["bytes_down"] == 4 * mode["parameters"]
        assert len(mode["expected"]["by_dataset"]) == 3
    local, secure = found["modes"]
    assert local["bytes_up"] == 4 * local["parameters"] and secure["bytes_up"] == 8 * secure["parameters"]
    assert found["changes"]["secure-sum"]["noise_times"] == pytest.approx(5**-0.5)
    assert found["changes"]["clients x 4"]["noise_times"] == pytest.approx(0.5)
    assert found["changes"]["records x 4"]["noise_times"] == pytest.approx(0.25)
    ratio = Budget(2.0).mu / Budget(4.0).mu
    assert found["changes"]["epsilon x 2"]["noise_times"] == pytest.approx(ratio)
    assert found["reads_records"] is False and found["seconds_of_products_a_round_here"] > 0


def test_no_record_is_read(asked, monkeypatch):
    """Not even a file of them is opened: loading is broken, and so is opening anything but the table of cells."""

    def never(*args, **kwargs):
        raise AssertionError("a plan read records")

    monkeypatch.setattr(fedsofim.data, "load", never)
    monkeypatch.setattr(fedsofim.data.loading, "load", never)
    real = builtins.open

    def only_text(file, *args, **kwargs):
        assert not str(file).endswith((".npz", ".npy", ".parquet", ".gz"))
        return real(file, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", only_text)
    assert asked(*SMALL)["modes"]


def test_a_measured_cell_is_its_own_expectation(asked):
    """CIFAR-10's features at 20 clients: what docs/recipe.md says, in both trust modes."""
    found = asked("plan", "--clients", 20, "--records", 2500, "--epsilon", 1)
    for mode, accuracy in zip(found["modes"], (66.70, 69.40), strict=True):
        nearest = mode["expected"]["by_dataset"][0]
        assert nearest["dataset"] == "cifar10_resnet20" and nearest["measured"]
        assert nearest["accuracy"] == pytest.approx(accuracy, abs=0.02)


def test_what_is_louder_than_anything_measured_has_no_range(asked, call):
    loud = ("plan", "--clients", 1, "--records", 10, "--features", 16, "--classes", 2, "--epsilon", 0.01)
    found = asked(*loud, "--ceiling", 90)
    assert found["modes"][0]["expected"]["accuracy"] is None and not found["modes"][0]["expected"]["measured"]
    assert all(c["of_ceiling"] is None for c in found["changes"].values())
    assert "louder than anything" in call(*loud).stdout


def test_a_ceiling_says_what_is_left_of_it(asked, call):
    found = asked(*SMALL, "--ceiling", 90)
    for change in found["changes"].values():
        assert change["of_ceiling"] == pytest.approx([90 - v for v in reversed(change["lost_to_noise"])])
    assert "left of 90" in call(*SMALL, "--ceiling", 90).stdout


@pytest.mark.slow
def test_the_table_and_the_picture(call, tmp_path: Path):
    done = call(*SMALL, "--picture", tmp_path / "plan.png")
    assert done.returncode == 0 and "no record read" in done.stdout and "what a change would buy" in done.stdout
    assert (tmp_path / "plan.png").stat().st_size > 20_000


def test_ones_own_table_of_cells(asked, tmp_path: Path):
    table = tmp_path / "cells.csv"
    head = "dataset,records,features,classes,clients,trust,epsilon,delta,accuracy,spread,seeds,source"
    rows = ["mine,1500,16,3,5,local,1,1e-5,70,1,5,here", "mine,1500,16,3,5,local,4,1e-5,80,1,5,here",
            "mine,1500,16,3,5,local,no-privacy,1e-5,90,0,1,here"]  # fmt: skip
    table.write_text("\n".join([head, *rows]) + "\n")
    (only,) = asked(*SMALL, "--cells", table)["modes"][0]["expected"]["by_dataset"]
    assert only["dataset"] == "mine" and 70 < only["accuracy"] < 80
    assert only["lost"] == pytest.approx(90 - only["accuracy"], abs=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--epsilon", "no-privacy"), "there is no noise to plan for"),
        (("--epsilon", 1, "--clients", 0), "clients is 0"),
        (("--epsilon", 1, "--records", 0), "at least one record each"),
        (("--epsilon", 1, "--classes", 1), "classes is 1"),
        (("--epsilon", 1, "--trust", "none"), "no trust 'none'"),
        (("--epsilon", 1, "--ceiling", 0), "expected an accuracy in percent"),
        (("--epsilon", 1, "--mbit", 0), "mbit is 0.0"),
        (("--epsilon", 1, "--cells", Path(__file__)), "expected a CSV table of cells"),
    ],
)
def test_what_is_wrong_is_said_in_words(call, options, message: str):
    done = call("plan", *options)
    assert done.returncode == 2 and message in done.stderr


def test_a_network_is_priced_by_its_own_parameters_and_promised_no_accuracy(asked, call):
    options = (*SMALL, "--model", "mlp", "--set-model", "hidden=8")
    found = asked(*options)
    mode = found["modes"][0]
    width = 2 * 16  # square roots are features too
    assert found["model"] == "mlp" and mode["parameters"] == (width + 1) * 8 + 9 * 3
    assert mode["epsilon"] == pytest.approx(2, abs=1e-6) and mode["expected"]["by_dataset"] == []
    assert found["seconds_of_products_a_round_here"] is None
    said = " ".join(call(*options).stdout.split())
    assert "model mlp: 11 of a record's 291 numbers are formed: 8, 3" in said
    assert "no range: accuracy, and what gradients to expect, were measured for the linear model only" in said
