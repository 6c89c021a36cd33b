"""Whom an epsilon protects, as a user asks for it: `privacy`, `plan` and what their answers say."""

import pytest

from fedsofim.cli.deployment import serve
from fedsofim.core.budget import Budget
from fedsofim.core.gaussian import epsilon_of

SMALL = ("plan", "--clients", 5, "--records", 300, "--features", 16, "--classes", 3, "--epsilon", 2)
PRICED = ("privacy", "--rounds", 5, "--clients", 4, "--epsilon", 1)


def test_privacy_says_whom_and_the_price_is_that_of_records(asked):
    record, person = asked(*PRICED), asked(*PRICED, "--unit", "person")
    assert (record["protects"], person["protects"][:10]) == ("one record", "one person")
    assert record["ledger"] == person["ledger"] and record["epsilon"] == person["epsilon"]
    client = asked(*PRICED, "--unit", "client", "--trust", "secure-sum")
    assert client["protects"] == "one client with all it holds"


def test_a_person_with_several_records_has_its_price(asked):
    group = asked(*PRICED, "--group", 5)["group"]
    assert group["size"] == 5
    assert group["epsilon"] == pytest.approx(epsilon_of(5 * Budget(1.0).mu, 1e-5), rel=1e-9)


def test_it_is_said_in_words(call):
    text = call(*PRICED, "--group", 5).stdout
    assert "for a person with at most 5 records, wherever they are: epsilon =" in text and "replace one record" in text
    assert "no range" in (text := call(*SMALL, "--unit", "person").stdout)
    assert "1,500 persons" in text and "protects one person with all their records at a client" in text


def test_a_plan_for_whole_clients_is_one_of_secure_sums(asked):
    found = asked(*SMALL, "--unit", "client")
    assert [m["trust"] for m in found["modes"]] == ["secure-sum"] and found["modes"][0]["records"] == 5
    assert not {"local", "records x 4"} & set(found["changes"])


def test_serve_takes_the_unit():
    assert {"unit", "records_per_person"} <= set(serve.__annotations__)
