"""The frozen backbones: the paper's features to 1e-4, strict loading, any module of the user's own."""

from pathlib import Path

import numpy as np
import pytest

from fedsofim.data import load
from fedsofim.data.extraction import extract, extractor, torch_extractor
from fedsofim.data.image_sources import read_images
from fedsofim.data.images import Images
from fedsofim.errors import InputError

torch = pytest.importorskip("torch")

from fedsofim.data.backbones import BACKBONES, backbone  # noqa: E402  (needs torch)

PUBLISHED = {
    "resnet20": 278_324,
    "resnet56": 861_620,
    "vgg16_bn": 15_299_748,
}  # parameters, as the authors count


@pytest.fixture
def random_weights(tmp_path: Path):
    def write(name: str) -> Path:
        torch.manual_seed(0)
        torch.save(BACKBONES[name][0]().state_dict(), tmp_path / f"{name}.pt")
        return tmp_path / f"{name}.pt"

    return write


@pytest.mark.slow
def test_cifar10_features_are_those_of_the_paper(shared: Path, tmp_path: Path) -> None:
    images = read_images("cifar10", shared / "samples/cifar-10-python-sample.tar.gz")
    using = extractor("resnet20", shared / "weights/cifar100_resnet20.pth")
    data = load(extract(images, using, tmp_path / "f.npz"))
    first = np.concatenate([np.arange(64) + 10_000 * batch for batch in range(5)])
    with np.load(shared / "data/cifar10_resnet20.npz") as stored:
        assert np.abs(data.x_train - stored["x_train"][first]).max() < 1e-4
        assert np.abs(data.x_test - stored["x_test"][:64]).max() < 1e-4
        assert np.array_equal(data.y_train, stored["y_train"][first])


@pytest.mark.slow
def test_pathmnist_features_are_those_of_the_paper(shared: Path, tmp_path: Path) -> None:
    images = read_images("pathmnist", shared / "samples/pathmnist-sample.npz")
    using = extractor("resnet20", shared / "weights/cifar100_resnet20.pth")
    data = load(extract(images, using, tmp_path / "f.npz", batch=50))
    assert data.x_val is not None
    with np.load(shared / "data/pathmnist_resnet20.npz") as stored:
        for part, ours in {"train": data.x_train, "val": data.x_val, "test": data.x_test}.items():
            assert np.abs(ours - stored[f"x_{part}"][: len(ours)]).max() < 1e-4


@pytest.mark.parametrize(("name", "features"), [("resnet20", 64), ("resnet56", 64), ("vgg16_bn", 512)])
def test_architectures(name: str, features: int, random_weights) -> None:
    assert sum(p.numel() for p in BACKBONES[name][0]().parameters()) == PUBLISHED[name]
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    out = extractor(name, random_weights(name)).run(images)
    assert out.shape == (3, features) and out.dtype == np.float32 and np.isfinite(out).all()


def test_folding_batch_norm_changes_nothing(random_weights) -> None:
    plain = BACKBONES["resnet20"][0]()
    torch.manual_seed(1)
    for name, tensor in plain.state_dict().items():  # statistics as after training, not the initial 0 and 1
        if "running" in name:
            tensor.uniform_(0.5, 1.5)
    file = random_weights("resnet20")
    torch.save(plain.state_dict(), file)
    x = torch.randn(4, 3, 32, 32)
    with torch.inference_mode():
        assert torch.allclose(plain.eval()(x), backbone("resnet20", file)(x), atol=1e-5)


def test_weights_that_do_not_fit(tmp_path: Path, random_weights) -> None:
    with pytest.raises(InputError, match="not the weights of resnet56"):
        backbone("resnet56", random_weights("resnet20"))
    (tmp_path / "text.pt").write_text("no")
    with pytest.raises(InputError, match=r"text.pt: not the weights"):
        backbone("resnet20", tmp_path / "text.pt")
    with pytest.raises(InputError, match="no such file"):
        backbone("resnet20", tmp_path / "absent.pt")
    with pytest.raises(InputError, match="did you mean 'resnet20'"):
        backbone("resnet2")


class Hostile:
    def __reduce__(self) -> tuple:
        return (Path.touch, (Path("/tmp/fedsofim-hostile-weights-ran"),))


def test_hostile_weights_do_not_run(tmp_path: Path) -> None:
    torch.save({"fc.weight": Hostile()}, tmp_path / "w.pt")
    with pytest.raises(InputError, match="not the weights"):
        backbone("resnet20", tmp_path / "w.pt")
    assert not Path("/tmp/fedsofim-hostile-weights-ran").exists()


def test_any_module_can_be_the_backbone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    mine = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    images = np.random.default_rng(0).integers(0, 256, (10, 16, 16, 3), dtype=np.uint8)
    pair = (images, np.arange(10) % 2)
    data = load(extract(Images.of("toy", {"train": pair, "test": pair}), mine, tmp_path / "f.npz"))
    assert data.features == 5
    other = torch_extractor(torch.nn.Sequential(torch.nn.Flatten()))
    assert other.identity != torch_extractor(mine).identity
    assert other.run(images).shape == (10, 3 * 32 * 32)
