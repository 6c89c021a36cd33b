"""A node's policy: everything is stated, nothing else is, and a mistake is named with its file."""

from pathlib import Path

import pytest

from fedsofim import extensions
from fedsofim.core.budget import WITHOUT
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.errors import InputError
from nodes import METHODS, policy_toml

FIELDS = {
    "node": ["name", "data", "classes", "ledger"],
    "budget": ["epsilon", "delta"],
    "limits": ["smallest_multiplier", "largest_clip", "methods"],
}
EVERY = [(section, field) for section, fields in FIELDS.items() for field in fields]


@pytest.fixture
def read(tmp_path: Path):
    def write_and_read(text: str) -> Policy:
        (tmp_path / "policy.toml").write_text(text)
        return read_policy(tmp_path / "policy.toml")

    return write_and_read


def said(read, text: str, tmp_path: Path) -> str:
    """What is wrong with a policy, which must begin with its file."""
    with pytest.raises(InputError) as caught:
        read(text)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'policy.toml'}: ")
    assert "\n" not in message
    return message


def with_line(field: str, value: str) -> str:
    """The policy with another value of a field."""
    lines = policy_toml().splitlines()
    assert sum(line.startswith(f"{field} = ") for line in lines) == 1
    return "\n".join(f"{field} = {value}" if line.startswith(f"{field} = ") else line for line in lines)


def test_a_policy_is_read_as_it_stands(read, tmp_path: Path):
    policy = read(policy_toml("hospital", classes=7, epsilon=2, delta=1e-6, methods=["fedsofim", "fedgd"]))
    assert (policy.name, policy.classes, policy.epsilon, policy.delta) == ("hospital", 7, 2, 1e-6)
    assert (policy.smallest_multiplier, policy.largest_clip) == (0.01, 10.0)
    assert policy.methods == ("fedsofim", "fedgd")
    assert policy.secure_sum_min_clients == 0


def test_paths_are_relative_to_the_policy(tmp_path: Path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here" / "policy.toml").write_text(with_line("ledger", '"/var/ledger.db"'))
    monkeypatch.chdir(tmp_path / "elsewhere")
    policy = read_policy("../here/policy.toml")
    assert policy.data.is_absolute()
    assert policy.data.resolve() == tmp_path.resolve() / "here" / "records.npz"
    assert policy.ledger == Path("/var/ledger.db")
    (tmp_path / "here" / "policy.toml").write_text(with_line("data", '"~/records.npz"'))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_policy("../here/policy.toml").data == tmp_path / "records.npz"


@pytest.mark.parametrize("section, field", EVERY)
def test_a_missing_field_is_named(read, tmp_path: Path, section: str, field: str):
    text = "\n".join(line for line in policy_toml().splitlines() if not line.startswith(f"{field} = "))
    message = said(read, text, tmp_path)
    assert f"[{section}]" in message
    assert f"{field} is missing" in message


@pytest.mark.parametrize("section", FIELDS)
def test_a_missing_section_is_named(read, tmp_path: Path, section: str):
    text = policy_toml().replace(f"[{section}]", f"[{section}s]")
    assert f"[{section}]" in said(read, text, tmp_path)


@pytest.mark.parametrize("section", FIELDS)
def test_an_unknown_field_is_named(read, tmp_path: Path, section: str):
    text = policy_toml().replace(f"[{section}]\n", f"[{section}]\nlargest_clop = 3\n")
    message = said(read, text, tmp_path)
    assert f"[{section}]" in message
    assert "largest_clop" in message
    if section == "limits":
        assert "did you mean 'largest_clip'" in message


def test_an_unknown_section_is_named(read, tmp_path: Path):
    assert "[more]" in said(read, policy_toml() + "\n[more]\nx = 1\n", tmp_path)


WRONG = {
    "name": ["3", '""', '"  "'],
    "data": ["3"],
    "classes": ['"ten"', "2.0", "1", "-3", "true"],
    "ledger": ["[]"],
    "epsilon": ['"1"', '"inf"', '"no privacy"', "0", "-1.0", "nan", "inf", "-inf", "true"],
    "delta": ['"1e-5"', "0.0", "1.0", "-1e-5", "nan", "inf"],
    "smallest_multiplier": ['"1"', "0", "-1.0", "nan", "false"],
    "largest_clip": ['"10"', "0", "0.0", "-2.5", "nan"],
    "methods": ['"fedsofim"', "[]"],
}


@pytest.mark.parametrize("field, value", [(f, v) for f, values in WRONG.items() for v in values])
def test_a_wrong_value_is_named(read, tmp_path: Path, field: str, value: str):
    assert field in said(read, with_line(field, value), tmp_path)


@pytest.mark.parametrize("value", ['["fedsofim", "fedgo"]', '["fedgd", 3]'])
def test_an_unknown_method_is_named(read, tmp_path: Path, value: str):
    message = said(read, with_line("methods", value), tmp_path)
    assert ("fedgo" in message and "fedgd" in message) or "'3'" in message


def test_no_cap_only_with_no_noise(read, tmp_path: Path):
    rehearsal = read(policy_toml(epsilon=WITHOUT, smallest_multiplier=0))
    assert rehearsal.epsilon == float("inf")
    assert "smallest_multiplier" in said(read, policy_toml(epsilon=WITHOUT, smallest_multiplier=0.5), tmp_path)
    assert "smallest_multiplier" in said(read, policy_toml(epsilon=1.0, smallest_multiplier=0), tmp_path)
    for delta in ("0.0", "1.0", "nan"):
        assert "delta" in said(read, policy_toml(epsilon=WITHOUT, smallest_multiplier=0, delta=delta), tmp_path)


@pytest.mark.parametrize("multiplier", [0, 1.0])
def test_a_bare_inf_is_an_error_that_says_how_no_privacy_is_written(read, tmp_path: Path, multiplier: float):
    message = said(read, policy_toml(epsilon="inf", smallest_multiplier=multiplier), tmp_path)
    assert 'epsilon = "no-privacy"' in message


def test_a_cap_below_everything_is_an_error(read, tmp_path: Path):
    assert "epsilon" in said(read, policy_toml(epsilon="-inf", smallest_multiplier=0), tmp_path)


def test_what_is_no_policy_at_all(tmp_path: Path, read):
    with pytest.raises(InputError, match="no such policy file"):
        read_policy(tmp_path / "none.toml")
    with pytest.raises(InputError, match="no such policy file"):
        read_policy(tmp_path)
    assert "not a TOML file" in said(read, "epsilon: 3", tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"binary\.toml: not a TOML file"):
        read_policy(tmp_path / "binary.toml")


def test_every_method_can_be_allowed(read):
    assert list(read(policy_toml()).methods) == METHODS


def test_a_method_of_an_installed_package_can_be_allowed_and_a_file_cannot(read, tmp_path: Path, monkeypatch):
    (tmp_path / "mine.py").write_text("raise AssertionError('it was loaded')\n")
    entries = {"mine": None, str(tmp_path / "mine.py"): None}  # a package may call its method as it likes
    monkeypatch.setattr(extensions, "installed", lambda kind: entries)
    assert read(policy_toml(methods=["fedgd", "mine"])).methods == ("fedgd", "mine")
    for name in ("./mine.py", str(tmp_path / "mine.py")):
        assert "mine.py" in said(read, policy_toml(methods=["fedgd", name]), tmp_path)


def test_a_policy_is_read_without_looking_through_every_installed_package_again(tmp_path: Path, monkeypatch):
    """A node reads it at every look for a message; looking through packages took 37 ms each time."""
    looked: list[str] = []
    monkeypatch.setattr("fedsofim.extensions.entry_points", lambda group: looked.append(group) or [])
    (tmp_path / "policy.toml").write_text(policy_toml())
    assert read_policy(tmp_path / "policy.toml") == read_policy(tmp_path / "policy.toml")
    assert sorted(set(looked)) == sorted(looked)  # each kind once
