"""When a failing test becomes a card (SPEC 2.3c)."""

from dataclasses import replace
from datetime import timedelta

from engine.execution.runners.toolchains.detection import PackageSetup
from engine.model import Tier
from engine.prediction.templates.failures import prepare_environment, still_red
from tests.prediction.builders import get_only, make_session
from tests.prediction.sensing import SensedWorkspace
from tests.support.past_run import PastRun

CART = "tests/test_cart.py::TestCart::test_cart"


def test_a_test_that_a_bisect_explained_is_not_run_alone(workspace: SensedWorkspace, head: str):
    bisected = PastRun(head, failing=(CART,), passed=0, full=False, tree="t1", session_id="ses_1", changed=False)
    workspace.runs = [PastRun(head, failing=(CART,), tree="t2", ran_at=bisected.ran_at + timedelta(hours=1)), bisected]
    workspace.sessions = [make_session("bisect", facts={"culprit": "0" * 40, "subject": "Faster cart"})]
    assert still_red(*workspace.sense_top()) == []
    workspace.runs[1] = replace(bisected, tree="t2")
    workspace.sessions = [make_session("bisect", facts={})]
    assert get_only(still_red(*workspace.sense_top())).prompt.startswith("Run `test_cart` alone")


def test_the_installation_that_brings_what_lacks_is_offered(workspace: SensedWorkspace):
    context, part = workspace.sense_top()
    python = PackageSetup("pip", "python", "", "", (("pip", "install", "."),), ("pypi.org",), environment=".venv")
    node = PackageSetup("npm", "node", "", "package-lock.json", (("npm", "ci"),), ("registry.npmjs.org",))
    project = replace(part.project, tools=(), missing_tool="node_modules", packages=(python, node))
    part = replace(part, project=project)
    card = get_only(prepare_environment(replace(context, parts=(part,)), part))
    assert card.parameters == {"command": ["npm ci"]}
    assert card.reasoning.startswith("The tests of this project need node_modules, which is not installed.")
    assert card.tier is Tier.UPKEEP, "nothing here is yours"
