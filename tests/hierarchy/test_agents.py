"""Agents as folders (SPEC 1.1, 4.1): what the operator may change, and that a broken folder harms no other."""

import json
import shutil
from pathlib import Path

import pytest

from engine.config.settings import FixedSettings
from engine.hierarchy.agents import Agents
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.support.checks import refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "agents"


@pytest.fixture
def agents(folder: Path, database: Database) -> Agents:
    agents = Agents(
        folder,
        cascade_config=folder.parent / "wisdom_cascade_config.json",
        settings=FixedSettings(),
        record=database.record,
    )
    assert agents.ensure_organisation()
    return agents


def read_recorded_kinds(database: Database) -> list[str]:
    return [entry.kind for entry in reversed(Ledger(database).read_newest())]


@pytest.mark.parametrize("agent_id", ["", "Big", "../up", "a b", "1st", "owner", "a" * 41, ".hidden", "ä"])
def test_bad_ids_are_refused(agents: Agents, agent_id: str):
    refused("bad_id", lambda: agents.add(agent_id, reports_to="ceo"))


def test_a_move_keeps_unknown_keys_of_the_file(agents: Agents, folder: Path, database: Database):
    file = folder / "gardener" / "comms.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"discord": "#garden"}))
    assert agents.move("gardener", "cro").reports_to == "cro"
    assert json.loads(file.read_text())["discord"] == "#garden"
    assert read_recorded_kinds(database) == ["AgentMoved"]


def test_a_move_that_makes_a_circle_is_refused(agents: Agents):
    refused("circle", lambda: agents.move("cto", "backend_builder"))
    refused("circle", lambda: agents.move("cto", "cto"))


def test_a_retired_agent_can_be_restored(agents: Agents, folder: Path, database: Database):
    soul = (folder / "junior_backend" / "soul.md").read_bytes()
    assert agents.retire("junior_backend") == "junior_backend"
    [agent] = agents.list_retired()
    assert (agent.id, agent.activity.state, agent.reports_to, agent.tier) == (
        "junior_backend",
        "retired",
        "backend_builder",
        5,
    )
    agents.add("junior_backend", reports_to="ceo")
    refused("agent_exists", lambda: agents.add("junior_backend", reports_to="ceo"))
    refused("agent_exists", lambda: agents.restore("junior_backend"))
    assert agents.retire("junior_backend") == "junior_backend.3", "no two agents have one id"
    retired = [(agent.id, agent.reports_to) for agent in agents.list_retired()]
    assert retired == [("junior_backend.2", "backend_builder"), ("junior_backend.3", "ceo")]
    assert agents.restore("junior_backend.2").reports_to == "backend_builder"
    assert (folder / "junior_backend" / "soul.md").read_bytes() == soul
    refused("unknown_agent", lambda: agents.restore("../dreamer"))
    assert read_recorded_kinds(database) == ["AgentRetired", "AgentAdded", "AgentRetired", "AgentAdded"]


def test_an_agent_that_serves_a_channel_or_leads_others_cannot_be_retired(agents: Agents):
    assert "research" in refused("serves_channel", lambda: agents.retire("researcher")).message
    assert "junior_frontend reports to" in refused("has_reports", lambda: agents.retire("frontend_builder")).message


@pytest.mark.parametrize(
    "file, text, reason",
    [
        ("comms.json", None, "comms.json: is missing"),
        ("comms.json", "{", "comms.json: Invalid JSON"),
        ("comms.json", '{"reports_to": "../x"}', "comms.json: reports_to: String should match"),
        ("tools.json", '{"budget": {"usd_per_day": -1}}', "tools.json: budget.usd_per_day: Input should be greater"),
        ("tools.json", '{"models": {"task": "gpt"}}', "tools.json: models: task: 'gpt' is not a model; expected"),
        ("tools.json", " " * 300_000, "tools.json: is larger than 262144 bytes"),
        ("tools.json", b"\xff", "tools.json: is not UTF-8: byte 0 is 0xff"),
    ],
)
def test_a_broken_folder_is_shown_with_its_reason_and_may_spend_nothing(
    agents: Agents, folder: Path, file: str, text: str | bytes | None, reason: str
):
    path = folder / "dreamer" / file
    if text is None:
        path.unlink()
    else:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    views = agents.list_agents()
    assert views[-1].id == "dreamer"
    assert views[-1].broken.startswith(reason)
    assert agents.find_problems()[0].startswith(f"dreamer: {reason}")
    assert agents.read_budget("dreamer") == 0
    refused("broken_agent", lambda: agents.move("dreamer", "ceo"))


def test_budgets_come_from_tools_json(agents: Agents, folder: Path):
    assert agents.read_budget("dreamer") is None
    assert agents.read_budget("nobody") is None
    (folder / "dreamer" / "tools.json").write_text('{"budget": {"usd_per_day": 0.25}}')
    assert agents.read_budget("dreamer") == 250_000


def test_a_channel_whose_agent_is_gone_is_a_problem_with_its_way_out(agents: Agents, folder: Path):
    shutil.rmtree(folder / "researcher")
    [problem] = agents.find_problems()
    reason = "channel research is served by researcher, which does not exist"
    assert problem == f"{reason}: clawpy config set channels.research.agent OTHER"
