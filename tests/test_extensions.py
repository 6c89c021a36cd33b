"""Methods, models and datasets of one's own: files and installed packages, and every way in which they are wrong."""

import os
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

import fedsofim as fs
from fedsofim import data, extensions, methods
from fedsofim.core.models import HEAD
from fedsofim.errors import InputError
from fedsofim.models import make as make_model
from fedsofim.models import names as model_names

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PLAIN = (
    "import optax\nimport fedsofim as fs\n\ndef {name}(lr=0.1):\n    return fs.server_method({name!r}, optax.sgd(lr))\n"
)


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def method_file(folder: Path, name: str = "mine") -> str:
    return write(folder / f"{name}.py", PLAIN.format(name=name))


# --- the examples -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_method_a_model_and_a_dataset_of_ones_own_train_together():
    rings = fs.load(EXAMPLES / "rings.py")
    assert (len(rings.y_train) + len(rings.y_test), rings.features, rings.classes) == (600, 2, 2)
    split = fs.split(rings, clients=4, iid=True)
    curved = make_model(str(EXAMPLES / "two_layers.py"))
    settings = {"client_lr": 0.5, "local_steps": 3}
    method = fs.make(str(EXAMPLES / "heavyball.py"), settings)
    run = fs.train(split, method, fs.Budget(50.0), 60, recipe="paper", clip=1.0, model=curved)
    assert run.plan.releases == 180 and run.plan.epsilon == pytest.approx(50.0)
    assert run.accuracy > 85


def test_rings_are_the_same_every_time_and_no_line_tells_them_apart():
    one, two = fs.load(EXAMPLES / "rings.py"), fs.load(str(EXAMPLES / "rings.py"))
    assert np.array_equal(one.x_train, two.x_train)
    straight = fs.train(fs.split(one, 2, iid=True), fs.fedgd(), fs.NO_PRIVACY, 60, recipe="paper", clip=1.0)
    assert straight.accuracy < 75


# --- files --------------------------------------------------------------------------------------------------


def test_settings_of_a_files_method_are_those_of_its_function(tmp_path):
    name = method_file(tmp_path)
    assert methods.parameters(name) == {"lr": 0.1}
    assert fs.make(name, {"lr": 0.5}).name == "mine"
    with pytest.raises(InputError, match="did you mean 'lr'"):
        fs.make(name, {"ler": 0.5})
    with pytest.raises(InputError, match="has no presets"):
        fs.make(name, {"preset": "paper"})


def test_a_file_may_hold_presets_and_need_settings(tmp_path):
    text = PLAIN.format(name="mine").replace("lr=0.1", "lr: float") + 'PRESETS = {"fast": {"lr": 2.0}}\n'
    name = write(tmp_path / "mine.py", text)
    with pytest.raises(InputError, match=r"mine\.py needs lr; set lr \(--set lr=VALUE\)"):
        fs.make(name)
    assert fs.make(name, {"lr": "0.5"}).name == fs.make(name, {"preset": "fast"}).name == "mine"


def test_a_name_with_a_hyphen_means_a_function_with_an_underscore(tmp_path):
    text = Path(method_file(tmp_path, "heavy_ball")).read_text()
    assert fs.make(write(tmp_path / "heavy-ball.py", text)).name == "heavy_ball"


def test_a_file_may_define_dataclasses(tmp_path):
    """They look themselves up among the modules."""
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n" + PLAIN.format(name="mine")
    assert fs.make(write(tmp_path / "mine.py", text + "@dataclass\nclass Kept:\n    a: int\n")).name == "mine"


def test_a_changed_file_is_read_again(tmp_path):
    name = method_file(tmp_path)
    before = fs.make(name)
    assert extensions.from_file("method", name)[1] is extensions.from_file("method", name)[1]  # read once until then
    mark = extensions.identity("method", name)
    write(Path(name), Path(name).read_text().replace("'mine'", "'better'"))
    os.utime(name, ns=(1, 1))  # another time than before, however coarse the clock of the disk
    assert (before.name, fs.make(name).name) == ("mine", "better")
    assert extensions.identity("method", name) != mark and mark.startswith("mine.py ")


MAKE = {"method": fs.make, "model": make_model, "dataset": fs.load}


@pytest.mark.parametrize("kind", MAKE)
def test_a_file_that_is_not_there(kind, tmp_path):
    with pytest.raises(InputError, match=rf"absent\.py: no such file; expected Python .* gives the {kind}"):
        MAKE[kind](str(tmp_path / "absent.py"))


BROKEN = {
    "def mine(:\n    pass\n": r"mine\.py: SyntaxError: .*line 1\)",
    "x = 1\nimport a_library_that_is_not_there\n": r"mine\.py: line 2: ModuleNotFoundError: .*a_library_that",
    "def half():\n    return 1 / 0\n\nhalf()\n": r"mine\.py: line 2: ZeroDivisionError",
    "mine = 3\n": r"mine\.py: has no function mine; expected one of the file's own name",
    "def other():\n    pass\n": r"mine\.py: has no function mine",
    "": r"mine\.py: has no function mine",
}


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("text", BROKEN)
def test_broken_files_are_told_by_their_line(kind, text, tmp_path):
    with pytest.raises(InputError, match=BROKEN[text]):
        MAKE[kind](write(tmp_path / "mine.py", text))


def test_a_broken_file_leaves_no_module_behind(tmp_path):
    before = set(sys.modules)
    with pytest.raises(InputError):
        fs.make(write(tmp_path / "mine.py", "1 / 0"))
    assert not [name for name in set(sys.modules) - before if name.startswith("fedsofim_file")]


@pytest.mark.parametrize(("kind", "wanted"), [("method", "Method"), ("model", "Model"), ("dataset", "Dataset")])
def test_a_file_that_gives_something_else(kind, wanted, tmp_path):
    with pytest.raises(InputError, match=rf"mine\.py gave a dict; expected a fs\.{wanted}, to be a {kind}"):
        MAKE[kind](write(tmp_path / "mine.py", "def mine():\n    return {}\n"))


# --- installed packages -------------------------------------------------------------------------------------


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Offer things as an installed package would: kind, name, where."""
    offered: list[EntryPoint] = []
    monkeypatch.setattr(extensions, "entry_points", lambda group: [e for e in offered if e.group == group])
    monkeypatch.syspath_prepend(tmp_path)

    def offer(kind: str, name: str, where: str) -> None:
        offered.append(EntryPoint(name, where, f"fedsofim.{kind}s"))

    return offer


def test_an_installed_method_is_known_by_its_name(install, tmp_path):
    method_file(tmp_path, "stranger_package")
    install("method", "stranger", "stranger_package:stranger_package")
    assert methods.names() == [*methods.PUBLISHED, "stranger"]
    assert fs.make("stranger", {"lr": "0.5"}).name == "stranger_package"
    with pytest.raises(InputError, match=r"did you mean 'stranger'.*known: .*stranger"):
        fs.make("strangr")


def test_an_installed_model_and_dataset_are_known_by_their_names(install, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    install("model", "curved", "two_layers:two_layers")
    install("dataset", "circles", "rings:rings")
    assert model_names() == ["cnn", HEAD, "mlp", "curved"] and "circles" in data.names()
    assert isinstance(make_model("curved"), fs.Model)
    assert fs.load("circles").name == "rings"
    with pytest.raises(InputError, match="needs no source"):
        fs.load("circles", source="x")


@pytest.mark.parametrize(
    ("kind", "name", "made"),
    [
        ("method", "fedsofim", lambda: fs.make("fedsofim") is fs.fedsofim()),
        ("model", HEAD, lambda: make_model(HEAD) is fs.softmax_head()),
        ("dataset", "digits", lambda: fs.load("digits").classes == 10),
    ],
)
def test_our_own_names_win(install, kind, name, made):
    before = {"method": methods.names, "model": model_names, "dataset": data.names}[kind]()
    install(kind, name, "a_package_that_is_not_there:thing")
    assert made()
    assert {"method": methods.names, "model": model_names, "dataset": data.names}[kind]() == before


def test_an_image_set_is_not_taken_over_either(install):
    install("dataset", "cifar10", "a_package_that_is_not_there:thing")
    with pytest.raises(InputError, match="is a set of images"):
        fs.load("cifar10")


@pytest.mark.parametrize("kind", MAKE)
def test_a_package_that_cannot_be_loaded_is_named(install, kind):
    install(kind, f"{kind}_of_nobody", "a_package_that_is_not_there:thing")
    with pytest.raises(InputError, match=rf"the {kind} '{kind}_of_nobody' of an installed package cannot be loaded: "):
        MAKE[kind](f"{kind}_of_nobody")


def test_a_package_whose_function_is_gone_is_named(install, tmp_path):
    method_file(tmp_path, "older_package")
    install("method", "renamed", "older_package:renamed")
    with pytest.raises(InputError, match=r"the method 'renamed' .* cannot be loaded: AttributeError"):
        fs.make("renamed")


def test_a_package_that_gives_something_else(install, tmp_path):
    write(tmp_path / "odd_package.py", "def odd():\n    return 3\n")
    install("method", "odd", "odd_package:odd")
    with pytest.raises(InputError, match=r"odd gave a int; expected a fs\.Method, to be a method"):
        fs.make("odd")


# --- what strangers' functions do ---------------------------------------------------------------------------


def test_a_model_file_that_has_changed_is_read_again(tmp_path):
    text = "import fedsofim as fs\n\ndef mine():\n    return fs.softmax_head({scale})\n"
    name = write(tmp_path / "mine.py", text.format(scale=0.5))
    assert make_model(name) is make_model(name) is fs.softmax_head(0.5)
    write(tmp_path / "mine.py", text.format(scale=0.25))
    assert make_model(name) is fs.softmax_head(0.25)


@pytest.mark.parametrize("kind", ["method", "model", "dataset"])
def test_what_goes_wrong_in_a_function_is_one_line_with_its_place(tmp_path, kind):
    name = write(tmp_path / "mine.py", "def mine():\n    x = 1\n    return x / 0\n")
    ask = {"method": fs.make, "model": make_model, "dataset": fs.load}[kind]
    with pytest.raises(InputError, match=r"mine\.py: line 3: ZeroDivisionError"):
        ask(name)


def test_a_setting_without_a_type_has_that_of_its_default(tmp_path):
    name = method_file(tmp_path)
    assert methods.resolve(name, {"lr": "0.5"}) == {"lr": 0.5}
    with pytest.raises(InputError, match="lr is 'fast'; expected float"):
        methods.resolve(name, {"lr": "fast"})


def test_an_entry_point_that_is_no_function(monkeypatch):
    offered = EntryPoint("odd", "fedsofim.methods:PUBLISHED", "fedsofim.methods")
    monkeypatch.setattr(extensions, "entry_points", lambda group: [offered] if group == "fedsofim.methods" else [])
    with pytest.raises(InputError, match="expected a function"):
        fs.make("odd")


def test_settings_may_have_any_name(tmp_path):
    text = "import optax\nimport fedsofim as fs\n\ndef mine(kind=1, name='a', build=2, wanted=3):\n"
    name = write(tmp_path / "mine.py", text + "    return fs.server_method(name, optax.sgd(0.1))\n")
    assert fs.make(name, {"name": "b", "kind": "4", "wanted": "5"}).name == "b"


def test_two_packages_under_one_name_are_refused(monkeypatch):
    offers = [EntryPoint("odd", f"fedsofim.methods.{m}:{m}", "fedsofim.methods") for m in ("fedgd", "fedavg")]
    monkeypatch.setattr(extensions, "entry_points", lambda group: offers if group == "fedsofim.methods" else [])
    with pytest.raises(InputError, match=r"'odd' is offered by .* and .*uninstall one"):
        fs.make("odd")


def test_what_a_strangers_name_means_now(tmp_path):
    name = method_file(tmp_path)
    before = extensions.identity("method", name)
    write(tmp_path / "mine.py", Path(name).read_text() + "# changed\n")
    assert before.startswith("mine.py ") and extensions.identity("method", name) != before
    assert extensions.identity("method", "fedgd") == "fedgd"
