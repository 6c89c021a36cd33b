"""What `federation init` writes: a chain that verifies, keys nobody else reads, policies that parse, TLS by default."""

import configparser
import ipaddress
import os
import re
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from nodes import SMALL

pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fedsofim[flower]'")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from fedsofim.core.budget import WITHOUT
from fedsofim.deploy.address import Address
from fedsofim.deploy.handout import Terms, hand_out, policy_text
from fedsofim.deploy.node import hello
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import read_policy
from fedsofim.errors import InputError

NAMES = ["node-1", "node-2"]


@pytest.fixture(scope="module")
def secure(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("federations") / "secure"
    hand_out(folder, NAMES, Address("fl.example.org", 9443), Terms(epsilon=2.5, classes=3))
    return folder


@pytest.fixture(scope="module")
def insecure(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("federations") / "insecure"
    hand_out(folder, NAMES, Address(insecure=True))
    return folder


def certificate_in(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


# --- certificates and keys ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fl.example.org", "localhost", "127.0.0.1"])
def test_the_servers_certificate_verifies_for_its_names(secure: Path, name: str):
    authority, leaf = certificate_in(secure / "server" / "ca.crt"), certificate_in(secure / "server" / "server.crt")
    subject = x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name)
    chain = PolicyBuilder().store(Store([authority])).build_server_verifier(subject).verify(leaf, [])
    assert chain[-1] == authority


def test_and_for_no_other_name_or_authority(secure: Path, tmp_path: Path):
    authority, leaf = certificate_in(secure / "server" / "ca.crt"), certificate_in(secure / "server" / "server.crt")
    with pytest.raises(VerificationError):
        verifier = PolicyBuilder().store(Store([authority])).build_server_verifier(x509.DNSName("evil.example.org"))
        verifier.verify(leaf, [])
    hand_out(tmp_path / "other", ["a"], Address("fl.example.org"))
    other = certificate_in(tmp_path / "other" / "server" / "ca.crt")
    with pytest.raises(VerificationError):
        verifier = PolicyBuilder().store(Store([other])).build_server_verifier(x509.DNSName("fl.example.org"))
        verifier.verify(leaf, [])


def test_only_the_authority_can_sign(secure: Path):
    authority, leaf = certificate_in(secure / "server" / "ca.crt"), certificate_in(secure / "server" / "server.crt")
    for certificate, is_authority in ((authority, True), (leaf, False)):
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        assert (constraints.critical, constraints.value.ca) == (True, is_authority)
    assert leaf.issuer == authority.subject
    leaf.verify_directly_issued_by(authority)


def test_everyone_has_the_same_authority(secure: Path):
    texts = {p.read_bytes() for p in secure.rglob("ca.crt")}
    assert len(list(secure.rglob("ca.crt"))) == 4
    assert len(texts) == 1


def test_keys_are_for_their_owners_only(secure: Path):
    keys = list(secure.rglob("*.key"))
    assert {str(k.relative_to(secure)) for k in keys} == {
        "authority/ca.key", "server/server.key", "nodes/node-1/node.key", "nodes/node-2/node.key",
    }  # fmt: skip
    for key in keys:
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    for folder in (secure / "authority", secure / "server", *(secure / "nodes" / name for name in NAMES)):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len({key.read_bytes() for key in keys}) == 4


def test_keys_fit_their_public_halves(secure: Path):
    for name in NAMES:
        key = load_ssh_private_key((secure / "nodes" / name / "node.key").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert key.curve.name == "secp384r1"
        for public in (secure / "nodes" / name / "node.pub", secure / "server" / "node-keys" / f"{name}.pub"):
            assert load_ssh_public_key(public.read_bytes()) == key.public_key()
            assert public.read_text().strip().endswith(name)
    server = load_pem_private_key((secure / "server" / "server.key").read_bytes(), None)
    assert server.public_key() == certificate_in(secure / "server" / "server.crt").public_key()


def test_no_secret_of_a_node_is_with_the_server_nor_of_another(secure: Path):
    for name in NAMES:
        secret = (secure / "nodes" / name / "node.key").read_bytes()
        elsewhere = [p for p in secure.rglob("*") if p.is_file() and name not in p.parts]
        assert all(secret not in p.read_bytes() for p in elsewhere)
    assert not any((secure / "nodes").rglob("ca.key"))
    assert not (secure / "server" / "ca.key").exists()


# --- policies and scripts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_parses_and_says_what_was_asked_for(secure: Path, name: str):
    policy = read_policy(secure / "nodes" / name / "policy.toml")
    assert (policy.name, policy.epsilon, policy.delta, policy.classes) == (name, 2.5, 1e-5, 3)
    assert policy.smallest_multiplier > 0
    assert policy.largest_clip > 0
    assert policy.methods
    assert policy.data == secure / "nodes" / name / "records.npz"
    assert policy.ledger.parent == secure / "nodes" / name
    assert policy.secure_sum_min_clients == 0


def test_with_records_beside_it_a_node_is_ready(tmp_path: Path):
    import numpy as np

    hand_out(tmp_path / "f", ["a"], Address(), Terms(classes=3))
    np.savez(tmp_path / "f" / "nodes" / "a" / "records.npz", x=SMALL.dataset.x_train, y=SMALL.dataset.y_train)
    policy = read_policy(tmp_path / "f" / "nodes" / "a" / "policy.toml")
    policy.account.create()
    assert hello(policy)["size"] == 39


@pytest.mark.parametrize("terms", [Terms(epsilon=1e-3, delta=1e-9), Terms(epsilon=3, methods=("fedgd",))])
def test_any_sensible_terms_make_a_policy(tmp_path: Path, terms: Terms):
    (tmp_path / "policy.toml").write_text(policy_text("n", terms))
    policy = read_policy(tmp_path / "policy.toml")
    assert (policy.epsilon, policy.delta, policy.methods) == (terms.epsilon, terms.delta, terms.methods)


def test_a_rehearsal_is_written_in_one_way(tmp_path: Path):
    (tmp_path / "policy.toml").write_text(policy_text("n", Terms(epsilon=WITHOUT, smallest_multiplier=0)))
    assert 'epsilon = "no-privacy"' in (tmp_path / "policy.toml").read_text()
    assert read_policy(tmp_path / "policy.toml").epsilon == float("inf")


@pytest.mark.parametrize("epsilon", [float("inf"), float("nan"), -1.0, 0.0, "none"])
def test_a_senseless_budget_is_an_error_before_anything_is_written(tmp_path: Path, epsilon: float | str):
    with pytest.raises(InputError, match="epsilon"):
        hand_out(tmp_path / "f", ["a"], Address(), Terms(epsilon=epsilon))
    assert not (tmp_path / "f").exists()


def scripts(folder: Path) -> dict[str, str]:
    found = {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*.sh")}
    for name in found:
        assert (folder / name).stat().st_mode & stat.S_IXUSR
        assert found[name].startswith("#!/bin/sh\n")
    return found


def test_scripts_are_for_tls(secure: Path):
    found = scripts(secure)
    assert set(found) == {"server/start-superlink.sh", "nodes/node-1/start.sh", "nodes/node-2/start.sh"}
    assert all("--insecure" not in text for text in found.values())
    link = found.pop("server/start-superlink.sh")
    for flag in ("-m fedsofim.deploy.flower.front --server .", "--port 9443", "--inner 9444"):
        assert flag in link
    assert "flower-superlink" not in link, "the front starts it, on this machine only"
    for text in found.values():
        for flag in ("--root-certificates ca.crt", "--key node.key", "--superlink fl.example.org:9443"):
            assert flag in text
        assert "--policy policy.toml" in text
    connection = tomllib.loads((secure / "server" / "flwr" / "config.toml").read_text())["superlink"]["federation"]
    assert Path(connection["root-certificates"]).read_bytes() == (secure / "server" / "ca.crt").read_bytes()
    assert "insecure" not in connection
    assert connection["address"] == "127.0.0.1:9444"
    assert "INSECURE" not in (secure / "README.txt").read_text()


def test_scripts_are_insecure_only_when_asked(insecure: Path):
    found = scripts(insecure)
    assert len(found) == 3
    for text in found.values():
        assert "--insecure" in text
        assert "certfile" not in text
        assert "--key" not in text
    assert not [p for p in insecure.rglob("*") if p.suffix in (".key", ".crt", ".pub")]
    connection = tomllib.loads((insecure / "server" / "flwr" / "config.toml").read_text())["superlink"]["federation"]
    assert connection["insecure"] is True
    assert "INSECURE" in (insecure / "README.txt").read_text()


def test_a_server_for_this_machine_listens_on_it_only(insecure: Path, secure: Path):
    assert "--host 127.0.0.1" in (insecure / "server" / "start-superlink.sh").read_text()
    assert "--host 0.0.0.0" in (secure / "server" / "start-superlink.sh").read_text()


# --- what it does not write ---------------------------------------------------------------------------------


def test_nothing_is_overwritten(secure: Path, tmp_path: Path):
    before = {p: p.read_bytes() for p in secure.rglob("*") if p.is_file()}
    with pytest.raises(InputError, match="not empty"):
        hand_out(secure, ["other"], Address())
    assert {p: p.read_bytes() for p in secure.rglob("*") if p.is_file()} == before
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        hand_out(tmp_path, ["a"], Address())
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_an_empty_folder_is_fine(tmp_path: Path):
    hand_out(tmp_path, ["a"], Address(insecure=True))
    assert (tmp_path / "nodes" / "a" / "policy.toml").is_file()


@pytest.mark.parametrize("names", [[], ["a", "a"]])
def test_names_must_be_names(tmp_path: Path, names: list[str]):
    with pytest.raises(InputError, match="names"):
        hand_out(tmp_path / "f", names, Address())
    assert not (tmp_path / "f").exists()


# --- ready to run -------------------------------------------------------------------------------------------


def test_scripts_find_a_python_that_has_fedsofim_without_an_environment(tmp_path: Path):
    hand_out(tmp_path / "f", ["a"], Address(insecure=True))
    script = tmp_path / "f" / "nodes" / "a" / "start.sh"
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    done = subprocess.run([script, "check"], env=bare, capture_output=True, text=True, cwd="/", timeout=300)
    assert done.returncode == 1
    assert "records.npz: there is no such file" in done.stdout
    assert "there is no ledger" in done.stdout
    lost = (
        script.read_text().replace(sys.executable, "/nowhere/python").replace(" python3; do", " /nowhere/python3; do")
    )
    script.write_text(lost)
    done = subprocess.run([script], env=bare, capture_output=True, text=True, cwd="/", timeout=300)
    assert done.returncode == 1 and "no Python here has fedsofim" in done.stderr


def test_units_and_container_files_start_what_was_written(tmp_path: Path):
    hand_out(tmp_path / "f", ["a"], Address())
    for folder, name, script in ((tmp_path / "f" / "nodes" / "a", "a", "start.sh"),
                                 (tmp_path / "f" / "server", "superlink", "start-superlink.sh")):  # fmt: skip
        unit = configparser.ConfigParser()
        unit.read(folder / f"{name}.service")
        assert unit["Service"]["ExecStart"] == str(folder / script)
        assert os.access(folder / script, os.X_OK)
        assert f'ENTRYPOINT ["/data/{script}"]' in (folder / "Containerfile").read_text()
    container = (tmp_path / "f" / "server" / "Containerfile").read_text()
    assert "-p 9092:9092 " in container and "9093" not in container and "podman exec superlink fedsofim" in container


def test_the_templates_cap_has_room_beyond_a_default_job(tmp_path: Path):
    (tmp_path / "policy.toml").write_text(policy_text("n", Terms()))
    assert read_policy(tmp_path / "policy.toml").epsilon > Order().budget.epsilon


def test_what_starts_a_node_says_how_to_see_its_page_and_stop_it(secure: Path):
    node = secure / "nodes" / "node-1"
    for name in ("start.sh", "node-1.service", "Containerfile"):
        assert "--page" in (node / name).read_text() and "state/page" in (node / name).read_text()
    assert "--page" in (secure / "README.txt").read_text()
    assert "fedsofim node stop --policy policy.toml" in (secure / "README.txt").read_text()
    assert "--page" not in (secure / "server" / "superlink.service").read_text()


# --- one state, whoever starts the node ---------------------------------------------------------------------


@pytest.fixture
def printed(tmp_path: Path) -> Path:
    """A node's folder after the commands of README.txt, as an operator types them in a shell of theirs."""
    import numpy as np

    hand_out(tmp_path / "f", ["a"], Address(insecure=True), Terms(classes=3))
    node = tmp_path / "f" / "nodes" / "a"
    np.savez(node / "records.npz", x=SMALL.dataset.x_train, y=SMALL.dataset.y_train)
    (command,) = re.findall(r"\((fedsofim ledger create[^)]*)\)", (tmp_path / "f" / "README.txt").read_text())
    run(command.replace("fedsofim", f"{sys.executable} -m fedsofim"), node, tmp_path / "home of a person")
    return node


def run(command: str, folder: Path, home: Path, **more: str) -> str:
    """What a command says at a user of this machine."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "PYTHONPATH": os.environ.get("PYTHONPATH", "")} | more
    done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, cwd=folder, timeout=300)
    return done.stdout + done.stderr


def test_the_service_finds_the_ledger_that_was_made_in_a_shell(printed: Path, tmp_path: Path):
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[assignment]
    unit.read(printed / "a.service")
    service = unit["Service"]
    environment = dict(pair.split("=", 1) for pair in service.get("Environment", "").split())
    said = run(f"{service['ExecStart']} check", Path(service["WorkingDirectory"]), tmp_path / "home of the service",
               **environment)  # fmt: skip
    assert "ok     ledger: whole, 0 entries" in said
    witness = read_policy(printed / "policy.toml").witness
    assert witness is not None and witness.is_file() and printed not in witness.resolve().parents
    writable = [path.removeprefix("-") for path in service["ReadWritePaths"].split()]
    assert str(printed) in writable and str(witness.resolve().parent) in writable


def test_the_container_mounts_the_witness_where_its_policy_looks(printed: Path):
    text = (printed / "Containerfile").read_text()
    mounts = dict(re.findall(r'-v "([^"]+)":"?([^" ]+)', text))
    assert mounts["$PWD"] == "/data" and "FEDSOFIM_STATE" not in text
    witness = read_policy(printed / "policy.toml").witness
    assert witness is not None
    inside = Path(os.path.normpath(Path("/data") / os.path.relpath(witness, printed)))
    assert mounts[f"$PWD/../{witness.resolve().parent.name}"] == str(inside.parent)


def test_scripts_can_be_run_by_whoever_may_enter_their_folder(printed: Path):
    for script in (printed / "start.sh", printed.parents[1] / "server" / "start-superlink.sh"):
        assert stat.S_IMODE(script.stat().st_mode) == 0o755
