"""Nodes whose records are tables: read by a public schema, the same for all; who has another is named in words."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsofim.data.cells import read_cells
from fedsofim.data.columns import encode
from fedsofim.data.meaning import differences, digest_of
from fedsofim.data.schema import read_schema
from fedsofim.deploy.clients import check_same_schema, client_of, clients_of
from fedsofim.deploy.node import answer, consider, hello
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.readiness import findings
from fedsofim.deploy.records import DataProblem, read_data
from fedsofim.deploy.testing import read_test
from fedsofim.errors import InputError, Refused
from hospital import SCHEMA, write_schema, write_table
from nodes import charges, policy_toml, start, table_node

ORDER = Order(recipe="paper", method="fedgd", rounds=1, clients=2)


@pytest.fixture
def site(tmp_path: Path):
    """Make a node with a table of its own; `changed` replaces parts of the schema's text."""

    def make(name: str, *changed: tuple[str, str], records: int = 30) -> Policy:
        text = SCHEMA
        for old, new in changed:
            assert old in text
            text = text.replace(old, new)
        schema = tmp_path / f"{name}.toml"
        schema.write_text(text, encoding="utf-8")
        table = write_table(tmp_path / f"{name}.csv", records, seed=len(name))
        return table_node(tmp_path / name, table, schema, name)

    return make


def said(*policies: Policy) -> str:
    with pytest.raises(InputError) as caught:
        clients_of([hello(p) for p in policies], len(policies))
    return str(caught.value)


def test_a_node_reads_its_table_by_its_schema(site, tmp_path: Path):
    policy = site("a")
    data = read_data(policy)
    wanted = encode(read_schema(tmp_path / "a.toml"), read_cells(tmp_path / "a.csv"))
    np.testing.assert_array_equal(data.x, wanted.x)
    assert (policy.classes, len(data.y), set(data.y.tolist())) == (2, 30, {0, 1})
    assert any("Latin-1" in remark for remark in data.remarks)
    facts = hello(policy)
    assert json.loads(json.dumps(facts)) == facts and facts["shape"] == [wanted.x.shape[1]]
    assert "P1-0" not in json.dumps(facts)  # the schema is public, and no record is in it


def test_parquet_is_the_same_records(site, tmp_path: Path):
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    import pyarrow as pa
    from pyarrow import parquet

    policy = site("a")
    cells = read_cells(tmp_path / "a.csv")
    parquet.write_table(pa.table({k: list(v) for k, v in cells.columns.items()}), tmp_path / "a.parquet")
    other = table_node(tmp_path / "p", tmp_path / "a.parquet", tmp_path / "a.toml", "p")
    assert read_data(other).fingerprint == read_data(policy).fingerprint


def test_a_table_that_changed_is_read_again(site, tmp_path: Path):
    policy = site("a")
    before = read_data(policy)
    assert read_data(policy) is before  # not parsed for every request
    write_table(tmp_path / "a.csv", 31, seed=5)
    assert len(read_data(policy).y) == 31


@pytest.mark.parametrize("changed, words", [
    (("range = [0, 120]", "range = [0, 100]"), "'age' has another range"),
    (('categories = ["f", "m"]', 'categories = ["m", "f"]'), "'sex' has another categories"),
    (("[columns.lab]", "[columns.labs]"), "it lacks lab; only it has labs"),
    (('["well", "ill"]', '["ill", "well"]'), "another label, or other classes"),
    (("missing = 5\n", "missing = 6\n"), "'lab' has another what a gap becomes"),
])  # fmt: skip
def test_a_node_with_another_schema_is_named(site, tmp_path: Path, changed: tuple[str, str], words: str):
    first, other = site("a"), site("bb", changed)
    if "labs" in words:
        text = (tmp_path / "bb.csv").read_text(encoding="latin-1").replace("lab;", "labs;", 1)
        (tmp_path / "bb.csv").write_text(text, encoding="latin-1")
    message = said(first, other)
    assert "bb: " in message and words in message and "the schema of a" in message
    assert "a: " not in message.replace("schema of a", "")


def test_how_a_site_writes_its_table_is_its_own_affair(site):
    """Decimal signs, date formats, words for yes and no, columns that nobody uses: the features are the same."""
    one, other = (read_schema_text(text) for text in (SCHEMA, SCHEMA.replace('decimal = ","\n', "").replace(
        '"nein", "ja"', '"no", "yes"').replace('missing = "nein"', 'missing = "no"').replace(
        'format = "%d.%m.%Y"\n', "").replace('[columns.record_id]\nkind = "drop"\n', "")))  # fmt: skip
    assert one != other and digest_of(one) == digest_of(other) and differences(one, other) == ""


def read_schema_text(text: str):
    import tomllib

    from fedsofim.data.schema import schema_of

    return schema_of(tomllib.loads(text))


def test_a_node_without_a_schema_is_named(site, tmp_path: Path):
    policy = site("a")
    data = read_data(policy)
    (tmp_path / "n").mkdir()
    np.savez(tmp_path / "n" / "records.npz", x=data.x, y=data.y)
    (tmp_path / "n" / "policy.toml").write_text(policy_toml("n", classes=2))
    bare = read_policy(tmp_path / "n" / "policy.toml")
    bare.account.create()
    assert "n: it has no schema" in said(policy, bare)
    text = policy_toml("n", data="records.npz", schema=tmp_path / "a.toml")
    (tmp_path / "n" / "policy.toml").write_text(text)  # arrays that the schema made of a table are as good as it
    clients_of([hello(policy), hello(read_policy(tmp_path / "n" / "policy.toml"))], 2)


def test_the_coordinators_schema_is_compared_too(site, tmp_path: Path):
    clients = clients_of([hello(site("a")), hello(site("bb"))], 2)
    check_same_schema(clients, read_schema_text(SCHEMA))
    with pytest.raises(InputError, match=r"the same as yours \(a: 'age' has another range. bb: 'age'"):
        check_same_schema(clients, read_schema_text(SCHEMA.replace("[0, 120]", "[0, 130]")))


def test_a_job_about_another_schema_is_refused_and_nothing_charged(site, tmp_path: Path):
    nodes = [site("a"), site("bb")]
    request = start(nodes, ORDER).request()
    write_schema(tmp_path / "a.toml")
    (tmp_path / "a.toml").write_text(SCHEMA.replace("[0, 120]", "[0, 130]"), encoding="utf-8")
    changed = read_policy(tmp_path / "a" / "policy.toml")
    for act in (lambda: answer(changed, request), lambda: consider(changed, request.job)):
        with pytest.raises(Refused, match="another schema"):
            act()
    assert charges(changed) == 0


def test_everything_wrong_with_a_table_is_told_to_its_operator_alone(site, tmp_path: Path):
    policy = site("a")
    lines = (tmp_path / "a.csv").read_text(encoding="latin-1").splitlines()
    lines[1] = lines[1].replace(lines[1].split(";")[2], "Meier", 1)
    lines[3] = ";".join([*lines[3].split(";")[:5], "1.1.99x", *lines[3].split(";")[6:]])
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n", encoding="latin-1")
    (wrong,) = [text for right, text in findings(tmp_path / "a" / "policy.toml", None, None, None) if not right]
    assert "line 2, column 'age' holds text" in wrong and "line 4, column 'admitted'" in wrong
    with pytest.raises(DataProblem) as caught:
        hello(policy)
    assert "Meier" not in str(caught.value) and "`fedsofim node check` says why" in str(caught.value)


def test_everything_is_told_in_one_pass_of_both_files(site, tmp_path: Path):
    """A wrong label hid the features, and these the empty ids, and all of them the file that is held out."""
    site("a")
    lines = [line.split(";") for line in (tmp_path / "a.csv").read_text(encoding="latin-1").splitlines()]
    lines[1][8], lines[2][2], lines[3][1], lines[4][3] = "Ill", "old", "", "Divers"
    for name in ("a.csv", "held.csv"):
        (tmp_path / name).write_text("\n".join(map(";".join, lines)) + "\n", encoding="latin-1")
    text = policy_toml("a", data=tmp_path / "a.csv", schema=tmp_path / "a.toml", test=tmp_path / "held.csv")
    (tmp_path / "a" / "policy.toml").write_text(text)
    seen = list(findings(tmp_path / "a" / "policy.toml", None, None, None))
    (wrong,) = [text for right, text in seen if not right]
    assert len([f for f in seen if f.mark == "note" and "first in line 5" in f.text]) == 2
    for said in ("line 2, column 'outcome' has a label that", "line 3, column 'age'", "line 4, column 'patient'"):
        assert wrong.count(said) == 2
    assert "a.csv: " in wrong and "held.csv: " in wrong
    with pytest.raises(DataProblem) as caught:
        read_data(read_policy(tmp_path / "a" / "policy.toml"))
    assert "Ill" not in str(caught.value) and "line" not in str(caught.value)


def test_the_operator_learns_where_strange_values_are_and_nobody_which(site, tmp_path: Path, capfd, caplog, recwarn):
    """With their lines, by `fedsofim node check`; not in what is sent, printed, logged or warned of."""
    policy = site("a")
    lines = [line.split(";") for line in (tmp_path / "a.csv").read_text(encoding="latin-1").splitlines()]
    lines[1][2], lines[2][3], lines[3][3] = "31415926", "Divers", "Divers"
    (tmp_path / "a.csv").write_text("\n".join(map(";".join, lines)) + "\n", encoding="latin-1")
    notes = [f.text for f in findings(tmp_path / "a" / "policy.toml", None, None, None) if f.mark == "note"]
    assert any("'age' lie outside its public range" in note and "first in line 2" in note for note in notes), notes
    assert any("'sex'" in note and "2 different values, first in line 3" in note for note in notes), notes
    sent = json.dumps(hello(policy)) + repr(answer(policy, start([policy], replace(ORDER, clients=1)).request()))
    printed = "".join(capfd.readouterr()) + caplog.text + "".join(str(w.message) for w in recwarn)
    for told in (sent, printed, *notes):
        assert "Divers" not in told and "31415926" not in told


@pytest.mark.parametrize("kind, words", [
    ("no file", "there is no such file"), ("no schema", "a table needs its public schema"),
    ("other kind", "cannot read files of kind '.xlsx'"),
])  # fmt: skip
def test_what_cannot_be_read_is_said(site, tmp_path: Path, kind: str, words: str):
    site("a")
    folder = tmp_path / "a"
    if kind == "no file":
        (tmp_path / "a.csv").unlink()
    elif kind == "no schema":
        (folder / "policy.toml").write_text(policy_toml("a", data=tmp_path / "a.csv"))
    else:
        (tmp_path / "a.xlsx").write_bytes(b"x")
        (folder / "policy.toml").write_text(policy_toml("a", data=tmp_path / "a.xlsx", schema=tmp_path / "a.toml"))
    assert any(words in text for right, text in findings(folder / "policy.toml", None, None, None) if not right)


@pytest.mark.parametrize("change, words", [
    (('classes = ["well", "ill"]\n', ""), "lists no classes"),
    (('classes = ["well", "ill"]\n', 'range = [0, 9]\n'), "nodes train classes so far"),
    (("[columns.outcome]\n", "[columns.outcome\n"), "TOML"),
])  # fmt: skip
def test_a_policy_whose_schema_is_no_use(site, tmp_path: Path, change: tuple[str, str], words: str):
    site("a")
    (tmp_path / "a.toml").write_text(SCHEMA.replace(*change), encoding="utf-8")
    with pytest.raises(InputError, match=words):
        read_policy(tmp_path / "a" / "policy.toml")


@pytest.mark.parametrize("schema", [{"columns": {"a": {"kind": ["number"]}}}, {"columns": 3}, [], "x", 7])
def test_a_strange_schema_of_a_node_is_an_error_in_words(schema: object):
    facts = {"node": "a", "size": 3, "shape": [2], "classes": 2, "schema": schema}
    with pytest.raises(InputError):
        client_of(facts)


@pytest.mark.filterwarnings("ignore::fedsofim.errors.DataWarning")
def test_the_coordinators_test_table_is_read_by_the_schema(site, tmp_path: Path):
    policy = site("a")
    x, y = read_test(str(tmp_path / "a.csv"), str(tmp_path / "a.toml"))
    np.testing.assert_array_equal(x, read_data(policy).x)
    np.testing.assert_array_equal(y, read_data(policy).y)
    with pytest.raises(InputError, match="--schema"):
        read_test(str(tmp_path / "a.csv"))
