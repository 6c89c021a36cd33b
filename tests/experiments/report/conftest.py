"""A finished small grid, made once for all tests of the report."""

import shutil
from pathlib import Path

import pytest

from fedsofim.experiments.grid import Entry, Experiment, Partition
from fedsofim.experiments.report.folder import write_report
from fedsofim.experiments.report.results import Results, read_results
from fedsofim.experiments.runner import run_experiment
from toy import write_blobs

RECORDS_ARE_KNOWN = "fedsofim.experiments.runner.is_public"  # as those of the real cifar10-resnet20 are


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """Three methods (one with a note), two budgets, two seeds on `cifar10_resnet20`, a stand-in of that name."""
    folder = tmp_path_factory.mktemp("finished")
    write_blobs(folder / "cifar10_resnet20.npz")
    experiment = Experiment(
        name="small <grid>",
        about="A test of the report.",
        datasets=("cifar10_resnet20.npz",),
        entries=(
            Entry("DP-FedGD", "fedgd", {"lr": 0.5}),
            Entry("DP-FTRL", "ftrl", {"lr": 0.1, "as_published": True}),
            Entry("DP-FedSOFIM", "fedsofim", {"lr": 0.5}),
        ),
        epsilons=(1.0, 10.0),
        seeds=(0, 1),
        rounds=20,
        partitions=(Partition("dirichlet", 3, 0.5, 1),),
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RECORDS_ARE_KNOWN, lambda name: True)
        run_experiment(experiment, folder / "out", folder)
    return folder / "out"


@pytest.fixture(scope="session")
def results(finished) -> Results:
    return read_results(finished)


@pytest.fixture(scope="session")
def reported(finished, tmp_path_factory) -> Path:
    """The same folder with its report, beside a published table it can be compared with."""
    folder = tmp_path_factory.mktemp("reported") / "out"
    shutil.copytree(finished, folder)
    published = folder.parent / "published"
    published.mkdir()
    (published / "accuracy.csv").write_text(
        "dataset,backbone,partition,epsilon,method,round,mean,std\n"
        "cifar10,resnet20,dirichlet,1,DP-FedGD,20,12.00,0.10\n"
        "cifar10,resnet20,iid,1,DP-FedGD,20,12.00,0.10\n"
        "cifar10,resnet20,dirichlet,1,DP-Unknown,20,12.00,0.10\n"
    )
    write_report(folder, published)
    return folder
