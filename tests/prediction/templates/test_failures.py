"""When a failing test becomes a card (SPEC 2.3c)."""

from datetime import timedelta

from engine.prediction.templates.failures import still_red
from tests.prediction.builders import get_only, make_session
from tests.prediction.sensing import SensedWorkspace
from tests.support.past_run import PastRun

CART = "tests/test_cart.py::TestCart::test_cart"


def test_a_test_that_a_bisect_explained_is_not_run_alone(world: SensedWorkspace, head: str):
    bisected = PastRun(head, failing=(CART,), passed=0, full=False, tree="t1", session_id="ses_1", changed=False)
    world.runs = [PastRun(head, failing=(CART,), tree="t2", ran_at=bisected.ran_at + timedelta(hours=1)), bisected]
    world.sessions = [make_session("bisect", facts={"culprit": "0" * 40, "subject": "Faster cart"})]
    assert still_red(*world.sense_top()) == []
    world.sessions = [make_session("bisect", facts={})]
    assert get_only(still_red(*world.sense_top())).prompt.startswith("Run `test_cart` alone")
