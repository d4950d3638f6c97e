"""`wisdom_cascade_config.json`: defaults, bounds, faults by file, line and key, edits that count at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.hierarchy.cascade_config import CascadeConfig, CascadeConfigFile, read_config
from engine.model import Refusal


def test_the_defaults_are_those_of_the_specification() -> None:
    assert CascadeConfig().model_dump() == {
        "enable_m1": True, "enable_m2": False, "cascade_depth": None, "m1_token_budget": 800,
        "m1_cache_ttl_seconds": 300, "m2_interval_seconds": 21600, "enable_upward_bubbling": True,
        "bubble_min_confidence": 0.75, "bubble_min_importance": 0.6, "bubble_max_per_cycle": 3,
        "tier_assignments": {},
    }  # fmt: skip
    assert CascadeConfig().depth == 10
    assert CascadeConfig(cascade_depth=3).depth == 3


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enable_m1", "yes"), ("cascade_depth", 0), ("cascade_depth", 101), ("m1_token_budget", -1),
        ("m1_token_budget", 1.5), ("m2_interval_seconds", 59), ("bubble_min_confidence", 1.01),
        ("bubble_min_importance", -0.01), ("bubble_max_per_cycle", True), ("m1_cache_ttl_seconds", -1),
    ],
)  # fmt: skip
def test_a_value_out_of_bounds_is_told_by_line_and_key_and_its_default_holds(key: str, value: object) -> None:
    read = read_config(f'{{\n  "bubble_max_per_cycle2": 1,\n  "{key}": {json.dumps(value)}\n}}', "c.json")
    assert getattr(read.config, key) == getattr(CascadeConfig(), key)
    assert read.problems[0].startswith("c.json:2: bubble_max_per_cycle2: unknown key")
    assert read.problems[1].startswith(f"c.json:3: {key}: ")


@pytest.mark.parametrize("text", ["{", "[]", "nonsense", '{"bubble_min_confidence": NaN}', "[" * 100_000])
def test_what_is_no_json_object_is_told(text: str) -> None:
    read = read_config(text, "c.json")
    assert read.config == CascadeConfig()
    assert len(read.problems) == 1


def test_an_edit_counts_at_once_and_a_written_tier_keeps_the_rest(tmp_path: Path) -> None:
    file = CascadeConfigFile(tmp_path / "c.json")
    assert file.current == CascadeConfig()
    for budget in (100, 200, 300):  # same size, same moment
        file.path.write_text(f'{{"m1_token_budget": {budget}, "later": 1}}')
        assert file.current.m1_token_budget == budget
    file.assign_tier("cto", 5)
    assert json.loads(file.path.read_text()) == {"m1_token_budget": 300, "later": 1, "tier_assignments": {"cto": 5}}
    assert file.current.tier_assignments == {"cto": 5}
    file.assign_tier("cto", None)
    assert file.current.tier_assignments == {}
    with pytest.raises(Refusal, match="no tier 6"):
        file.assign_tier("cto", 6)
    file.path.write_text("{")
    with pytest.raises(Refusal, match="cannot be read"):
        file.assign_tier("cto", 1)
    assert file.path.read_text() == "{"
