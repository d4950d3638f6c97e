"""Tiers, chains of leaders, and the settings of guidance in `wisdom_cascade_config.json` (SPEC 1.2 to 1.4, 1.11)."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.hierarchy import OWNER, CascadeConfig, CascadeConfigFile, climb_chain, read_config, resolve_tier
from engine.model import AgentView
from tests.support import read_table
from tests.support.checks import refused

ROWS = read_table(__file__)


def test_the_defaults_are_those_of_the_specification():
    assert CascadeConfig().model_dump() == {
        "enable_m1": True, "enable_m2": False, "cascade_depth": None, "m1_token_budget": 800,
        "m1_cache_ttl_seconds": 300, "m2_interval_seconds": 21600, "enable_upward_bubbling": True,
        "bubble_min_confidence": 0.75, "bubble_min_importance": 0.6, "bubble_max_per_cycle": 3,
        "tier_assignments": {},
    }  # fmt: skip
    assert CascadeConfig().depth == 10
    assert CascadeConfig(cascade_depth=3).depth == 3


@pytest.mark.parametrize("key, value", ROWS["out_of_bounds"])
def test_a_value_out_of_bounds_is_reported_by_its_key_and_has_its_default(key: str, value: object):
    read = read_config(f'{{\n  "bubble_max_per_cycle2": 1,\n  "{key}": {json.dumps(value)}\n}}', "c.json")
    assert getattr(read.config, key) == getattr(CascadeConfig(), key)
    unknown, bad = sorted(read.problems)
    assert unknown.startswith("c.json: bubble_max_per_cycle2: unknown key")
    assert bad.startswith(f"c.json: {key}: ")


@pytest.mark.parametrize("text", ["{", "[]", "nonsense", '{"bubble_min_confidence": NaN}', "[" * 100_000])
def test_a_file_that_is_no_json_object_is_reported_and_all_defaults_count(tmp_path: Path, text: str):
    file = CascadeConfigFile(tmp_path / "c.json")
    file.path.write_text(text)
    read = file.read()
    assert read.config == CascadeConfig()
    assert len(read.problems) == 1


def test_an_assigned_tier_is_written_and_the_rest_of_the_file_stays(tmp_path: Path):
    file = CascadeConfigFile(tmp_path / "c.json")
    file.path.write_text('{"m1_token_budget": 300, "later": 1}')
    file.assign_tier("cto", 5)
    assert json.loads(file.path.read_text()) == {"m1_token_budget": 300, "later": 1, "tier_assignments": {"cto": 5}}
    assert file.current.tier_assignments == {"cto": 5}
    file.assign_tier("cto", None)
    assert file.current.tier_assignments == {}
    refused("bad_tier", lambda: file.assign_tier("cto", 6))
    file.path.write_text("{")
    refused("bad_config", lambda: file.assign_tier("cto", 1))
    assert file.path.read_text() == "{"


# Tiers and chains


def make_agents(reports_to: dict[str, str]) -> dict[str, AgentView]:
    """Agents by id; `reports_to` has the leader of each."""
    return {name: AgentView(name, "", leader, 4, "", "", ()) for name, leader in reports_to.items()}


@pytest.mark.parametrize("agent_id, tier", ROWS["tier_by_name"])
def test_without_assignment_and_archetype_the_name_decides_the_tier(agent_id: str, tier: int):
    resolved, rule = resolve_tier(agent_id, assigned=None, archetype="")
    assert resolved == tier
    assert rule.partition(":")[0] == "the name"


@pytest.mark.parametrize("leaders, end", [(10, "reaches the owner"), (11, "stops after 10 leaders")])
def test_a_chain_has_at_most_ten_leaders(leaders: int, end: str):
    names = [f"a{n}" for n in range(leaders + 1)]
    agents = make_agents(dict(zip(names, [*names[1:], OWNER], strict=True)))
    lineage = climb_chain(agents["a0"], agents.get, depth=CascadeConfig().depth)
    assert lineage.end == end
    assert len(lineage.leaders) == 10


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([*"abcdefg", "owner"]), max_size=6), st.integers(1, 9)
)
def test_every_walk_of_a_chain_ends_and_says_why(reports_to: dict[str, str], depth: int):
    agents = make_agents({"a": "b"} | reports_to)
    lineage = climb_chain(agents["a"], agents.get, depth=depth)
    leaders = {leader.id for leader in lineage.leaders}
    assert len(lineage.leaders) == len(leaders - {"a"}) <= depth
    assert not (lineage.is_loose and lineage.end == "reaches the owner")
