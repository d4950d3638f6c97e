"""The organisation as folders: a first run, what the operator may do, and folders that someone broke."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from engine.config import FixedSettings
from engine.hierarchy.agents import Agents
from engine.hierarchy.organisation import (
    DEPTH,
    OWNER,
    CascadeConfig,
    CascadeConfigFile,
    read_config,
    resolve_tier,
    walk_chain,
)
from engine.model import Refusal
from engine.storage.database import Database
from engine.storage.ledger import Ledger


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "agents"


@pytest.fixture
def agents(folder: Path, database: Database) -> Agents:
    agents = Agents(
        folder,
        cascade_config=folder.parent / "wisdom_cascade_config.json",
        settings=FixedSettings(),
        database=database,
    )
    assert agents.ensure_organisation()
    return agents


def kinds(database: Database) -> list[str]:
    return [entry.kind for entry in reversed(Ledger(database).latest())]


def refused(code: str, work: object) -> Refusal:
    with pytest.raises(Refusal) as caught:
        work()  # type: ignore[operator]
    assert caught.value.code == code
    assert caught.value.fix
    return caught.value


def test_a_second_run_touches_nothing(agents: Agents, folder: Path) -> None:
    (folder / "cfo" / "soul.md").write_text("mine")
    assert not agents.ensure_organisation()
    assert agents.soul("cfo") == "mine"


@pytest.mark.parametrize("bad", ["", "Big", "../up", "a b", "1st", "owner", "a" * 41, ".hidden", "ä"])
def test_bad_ids_are_refused(agents: Agents, bad: str) -> None:
    refused("bad_id", lambda: agents.add(bad, reports_to="ceo"))


def test_moving_an_agent_keeps_what_its_file_says_besides(agents: Agents, folder: Path, database: Database) -> None:
    file = folder / "gardener" / "comms.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"discord": "#garden"}))
    assert agents.move("gardener", "cro").reports_to == "cro"
    assert json.loads(file.read_text())["discord"] == "#garden"
    assert kinds(database) == ["AgentMoved"]


def test_a_move_that_makes_a_circle_is_refused(agents: Agents) -> None:
    refused("circle", lambda: agents.move("cto", "backend_builder"))
    refused("circle", lambda: agents.move("cto", "cto"))
    assert agents.get("cto").reports_to == "ceo"


def test_who_was_retired_can_be_brought_back(agents: Agents, folder: Path, database: Database) -> None:
    soul = (folder / "junior_backend" / "soul.md").read_bytes()
    assert agents.retire("junior_backend") == "junior_backend"
    [gone] = agents.retired()
    assert (gone.id, gone.state, gone.reports_to, gone.tier) == ("junior_backend", "retired", "backend_builder", 5)
    agents.add("junior_backend", reports_to="ceo")
    refused("agent_exists", lambda: agents.add("junior_backend", reports_to="ceo"))
    refused("agent_exists", lambda: agents.restore("junior_backend"))
    assert agents.retire("junior_backend") == "junior_backend.2"
    assert [(one.id, one.reports_to) for one in agents.retired()] == [
        ("junior_backend", "backend_builder"),
        ("junior_backend.2", "ceo"),
    ]
    assert agents.restore("junior_backend").reports_to == "backend_builder"
    assert (folder / "junior_backend" / "soul.md").read_bytes() == soul
    refused("unknown_agent", lambda: agents.restore("../dreamer"))
    assert kinds(database) == ["AgentRetired", "AgentAdded", "AgentRetired", "AgentAdded"]


def test_who_serves_a_channel_or_leads_others_stays(agents: Agents) -> None:
    assert "research" in refused("serves_channel", lambda: agents.retire("researcher")).message
    assert "junior_frontend reports to" in refused("has_reports", lambda: agents.retire("frontend_builder")).message


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("comms.json", None, "comms.json: is missing"),
        ("comms.json", "{", "comms.json: Invalid JSON"),
        ("comms.json", "{}", "comms.json: reports_to: Field required"),
        ("comms.json", '{"reports_to": 3}', "comms.json: reports_to: Input should be a valid string"),
        ("comms.json", '{"reports_to": "../x"}', "comms.json: reports_to: String should match"),
        ("tools.json", "[]", "tools.json: Input should be an object"),
        ("tools.json", '{"budget": {"usd_per_day": -1}}', "tools.json: budget.usd_per_day: Input should be greater"),
        ("tools.json", '{"models": {"task": "gpt"}}', "tools.json: models: task: 'gpt' is not a model; expected"),
        ("tools.json", '{"models": {"plan": 3}}', "tools.json: models.plan: Input should be a valid string"),
        ("tools.json", " " * 300_000, "tools.json: is larger than 262144 bytes"),
        ("tools.json", b"\xff", "tools.json: cannot be read"),
    ],
)
def test_a_broken_folder_is_shown_with_its_reason_and_harms_no_other(
    agents: Agents, folder: Path, file: str, text: str | bytes | None, reason: str
) -> None:
    path = folder / "dreamer" / file
    if text is None:
        path.unlink()
    else:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    views = agents.list()
    assert len(views) == 19
    assert views[-1].id == "dreamer"
    assert views[-1].broken.startswith(reason)
    assert agents.problems()[0].startswith(f"dreamer: {reason}")
    assert agents.budget("dreamer") == 0
    refused("broken_agent", lambda: agents.move("dreamer", "ceo"))


def test_budgets_come_from_tools_json(agents: Agents, folder: Path) -> None:
    assert agents.budget("dreamer") is None
    assert agents.budget("nobody") is None
    (folder / "dreamer" / "tools.json").write_text('{"budget": {"usd_per_day": 0.25}}')
    assert agents.budget("dreamer") == 250_000


def test_a_folder_that_cannot_even_be_looked_into_harms_no_other(agents: Agents, folder: Path) -> None:
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "astray").symlink_to(folder / "astray" / "deeper")
    broken = {one.id: one.broken for one in agents.list() if one.broken}
    assert broken.keys() == {"loop", "astray"}
    assert all(why.startswith("comms.json: cannot be read: ") for why in broken.values())
    assert agents.get("cto").broken == ""


@pytest.mark.parametrize("name", ["comms.json", "tools.json"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(agents: Agents, folder: Path, name: str) -> None:
    (folder / "dreamer" / name).unlink()
    os.mkfifo(folder / "dreamer" / name)
    [broken] = [one for one in agents.list() if one.broken]
    assert (broken.id, broken.broken) == ("dreamer", f"{name}: is not a regular file")
    (folder / "cto" / "soul.md").unlink()
    os.mkfifo(folder / "cto" / "soul.md")
    with pytest.raises(ValueError, match="not a regular file"):
        agents.soul("cto")


# `wisdom_cascade_config.json`: defaults, bounds, faults by file, line and key, edits that count at once.


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
    unknown, bad = sorted(read.problems)
    assert unknown.startswith("c.json:2: bubble_max_per_cycle2: unknown key")
    assert bad.startswith(f"c.json:3: {key}: ")


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


# SPEC 1.2 to 1.4 as pure decisions.


@pytest.mark.parametrize(
    ("agent_id", "tier"),
    [
        ("alfred", 1), ("ceo", 1),
        ("cto", 2), ("cfo", 2), ("coo", 2), ("cmo", 2), ("cino", 2), ("cro", 2), ("oeo", 2), ("cto-emea", 2),
        ("frontend_lead", 3), ("backend_lead", 3), ("release-manager", 3),
        ("frontend_builder", 4), ("backend_builder", 4),
        ("junior_frontend", 5), ("junior_backend", 5), ("junior_builder", 5),
    ],
)  # fmt: skip
def test_the_name_decides_when_nothing_else_does(agent_id: str, tier: int) -> None:
    decided, rule = resolve_tier(agent_id, assigned=None, archetype="")
    assert decided == tier
    assert rule.startswith("the name: ")


@pytest.mark.parametrize(("leaders", "words"), [(10, "reaches the owner"), (11, "stops after 10 leaders")])
def test_ten_leaders_are_walked_and_no_more(leaders: int, words: str) -> None:
    names = [f"a{n}" for n in range(leaders + 1)]
    chain = walk_chain("a0", dict(zip(names, [*names[1:], OWNER], strict=True)))
    assert chain.words == words
    assert len(chain.leaders) == DEPTH
