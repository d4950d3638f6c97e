"""The demo's organisation for the stand-in engine: real folders, guidance, gates and queue; the activity is made up."""

import shutil
from pathlib import Path
from types import SimpleNamespace

from clawpy_console.cli.demo import add_organisation
from engine.clock import FakeClock
from engine.config import FixedSettings
from engine.memory.agent_files import AgentFiles
from engine.model import AgentActivity
from engine.storage.database import Database
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW
from tests.hierarchy.guidance_world import Organisation, make_world

ACTIVITY = {
    "backend_builder": AgentActivity("running", 4210, sessions=41, total_tokens=182_400, total_cost=2_310_000),
    "chronicler": AgentActivity(sessions=12, total_tokens=48_000, total_cost=410_000),
    "researcher": AgentActivity("waiting", 900, sessions=7, total_tokens=95_000, total_cost=730_000),
}


def make_organisation(folder: Path) -> Path:
    """The organisation's files and database in `folder`, for tests to copy; returns `folder`."""
    engine = StandIn()
    world = _serve_organisation(engine, folder)
    world.agents.ensure_organisation()
    add_organisation(engine)
    world.database.close()
    return folder


def with_organisation(engine: StandIn, organisation: Path, folder: Path) -> Organisation:
    """Give `engine` a copy, in `folder`, of the files in `organisation`. Close its `database` at the end."""
    shutil.copytree(organisation, folder, dirs_exist_ok=True)
    world = _serve_organisation(engine, folder)
    channels = FixedSettings().current.channels
    engine.settings.current.channels = channels
    return world


def _serve_organisation(engine: StandIn, folder: Path) -> Organisation:
    clock = FakeClock(NOW)
    database = Database(folder / "people.db", clock=clock, bus=engine.bus, durable=False)
    world = make_world(folder, database, clock, members=(), read_activity=lambda: ACTIVITY)
    engine.agents = world.agents
    engine.profiles, engine.cascade = world.profiles, world.cascade  # type: ignore[attr-defined]
    engine.bubbles, engine.teaching = world.bubbles, world.teaching  # type: ignore[attr-defined]
    engine.home = SimpleNamespace(agents=Path("/home/ada/.local/share/clawpy/agents"))  # type: ignore[attr-defined]
    engine.agent_files = AgentFiles(world.folder, database, world.agents.find_file_problem)
    return world
