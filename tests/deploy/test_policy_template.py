"""The policy that `federation init` writes: every key is in it, and it can be read where nothing but the folder is."""

import re
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fedsofim[flower]'")

from fedsofim.deploy import policy
from fedsofim.deploy.handout import Terms, policy_text
from fedsofim.deploy.policy import read_policy


@pytest.mark.parametrize("schema", [None, Path("schema.toml")])
def test_the_template_has_every_key_and_sends_nobody_to_pages_that_are_not_there(schema: Path | None):
    """An operator has the folder and the installed library, and no checkout with docs/."""
    text = policy_text("n", Terms(schema=schema))
    assert "docs/" not in text and ".md" not in text
    offered = set(re.findall(r"^(?:# )?([a-z_]+) = ", text, re.M))
    other = {"classes", "schema"} - ({"schema"} if schema else {"classes"})
    keys = {key for section in policy._FIELDS.values() for key in section} | set(policy.Work.__dataclass_fields__)
    assert offered == (keys | {"format"}) - other
    assert "[peers]" in text


def test_the_optional_keys_of_a_template_can_be_taken_in(tmp_path: Path):
    text = re.sub(r"^# (?=[a-z_-]+ = |\[peers\])", "", policy_text("n", Terms()), flags=re.M)
    (tmp_path / "policy.toml").write_text(text)
    read = read_policy(tmp_path / "policy.toml")
    assert (read.unit, read.most, read.test) == ("person", 10, tmp_path / "held-out.csv")
    assert (read.mask_key, dict(read.peers)) == (tmp_path / "mask.key", {"other-node": "k3Zr...="})
