"""The demo's organisation for the stand-in engine: real folders, guidance, gates and queue; the activity is made up."""

from pathlib import Path

from clawpy_console.cli.demo import add_organisation
from engine.clock import FakeClock
from engine.config.settings import FixedSettings
from engine.memory.agent_files import AgentFiles
from engine.model import AgentActivity
from engine.storage.database import Database
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW
from tests.hierarchy.guidance_world import Organisation, make_world

SHOWN_FOLDER = Path("/home/ada/.local/share/clawpy/agents")
"""The folder that screens name, so that pictures do not have that of a test."""

ACTIVITY = {
    "backend_builder": AgentActivity("running", 4210, sessions=41, total_tokens=182_400, total_cost=2_310_000),
    "chronicler": AgentActivity(sessions=12, total_tokens=48_000, total_cost=410_000),
    "researcher": AgentActivity("waiting", 900, sessions=7, total_tokens=95_000, total_cost=730_000),
}


def write_organisation(folder: Path):
    """Write the organisation's files and database into a folder, for tests to copy."""
    engine = StandIn()
    world = serve_organisation(engine, folder)
    world.agents.ensure_organisation()
    add_organisation(engine)
    world.database.close()


def serve_organisation(engine: StandIn, folder: Path) -> Organisation:
    """Give `engine` the services of an organisation in a folder, and `world`, which has all of them. Close its
    `database` at the end."""
    clock = FakeClock(NOW)
    database = Database(folder / "people.db", clock=clock, bus=engine.bus, durable=False)
    world = make_world(folder, database, clock, members=(), read_activity=lambda: ACTIVITY)
    engine.world = world
    engine.agents, engine.profiles, engine.cascade = world.agents, world.profiles, world.cascade
    engine.bubbles, engine.teaching = world.bubbles, world.teaching
    engine.agent_files = AgentFiles(world.folder, database, world.agents.find_file_problem)
    engine.settings.current.channels = FixedSettings().current.channels
    engine.home.agents = SHOWN_FOLDER
    return world
