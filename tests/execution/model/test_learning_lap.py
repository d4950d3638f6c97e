"""Laps of learning with a model (SPEC 5): from what really happened in sessions to what the next one is told."""

from __future__ import annotations

import sys

import pytest

from engine.execution.validation import REPAIRS_HEADING
from engine.model import CheckResult
from engine.model.adaptation import CandidateStatus, FixTemplate
from tests.execution.model.world import ModelWorld
from tests.situations.conftest import SHOP
from tests.support.model_server import Call, Reply

SAID = "The cart counts three; a test greps for it."


def broken_and_mended(number: int) -> list[Reply]:
    write = Call("write", {"path": "cart.txt", "content": f"4\n{'x' * number}\n"})
    mend = Call("edit", {"path": "cart.txt", "old_text": "4\n", "new_text": "3\n"})
    return [Reply(text="I tidy it.", calls=(write,)), Reply(text="Tidied."), Reply(calls=(mend,)), Reply(text=SAID)]


@pytest.mark.long
def test_from_two_heals_to_a_playbook(world: ModelWorld) -> None:
    world.repository.commit("A cart", {"Makefile": "test:\n\tgrep -q 3 cart.txt\n", "cart.txt": "3\n"})
    world.configure(validation=True, **{"adaptation.withheld": 0.0})

    def tidied(number: int) -> str:
        """A session that breaks the cart and mends it; what it was told in between."""
        world.server.requests.clear()
        world.server.script(*broken_and_mended(number))
        view = world.run(f"Tidy the cart, part {number}")
        assert "fixed at attempt 1" in view.summary, "\n".join(world.texts(view))
        return next(said for request in world.server.requests for said in request.users if "that passed before" in said)

    with world.opened() as engine:
        assert SAID not in tidied(1)
        assert SAID not in tidied(2)
        engine.adaptation.run_round()
        (one,) = engine.adaptation.candidates()
        assert one.status is CandidateStatus.REVIEW
        assert isinstance(one.effect, FixTemplate)
        assert one.effect.failing == ("make test",)
        assert one.effect.repairs == (SAID, "in cart.txt it replaced `4` by `3`")
        assert "\n-4\n+3\n" in one.effect.patch
        assert [wait.id for wait in engine.queue() if wait.kind == "candidate"] == [one.id]
        engine.adaptation.approve(one.id)
        assert f"{REPAIRS_HEADING}:\n<repairs>\n- {SAID}" in tidied(3)


@pytest.mark.long
def test_a_landed_mend_of_a_red_test_is_kept_with_its_diff(world: ModelWorld) -> None:
    broken = SHOP | {"cart.py": "def total(prices):\n    return sum(prices) / len([])\n"}
    world.repository.commit("Mean price", broken)
    (world.repository.path / ".venv").symlink_to(sys.prefix, target_is_directory=True)
    world.configure(validation=True)
    with world.opened() as engine:
        red = CheckResult("pytest", 0, 1, failing=("tests/test_cart.py::test_total",))
        where = {"session_id": "before", "workspace": str(world.repository.path), "head": "", "tree": "", "clean": True}
        engine.database.write(lambda tx: engine.validation_runs.record(tx, check=red, full=True, **where))
        mend = Call("edit", {"path": "cart.py", "old_text": " / len([])", "new_text": ""})
        world.server.script(Reply(calls=(mend,)), Reply(text="The sum is no mean."))
        view = world.run("Make test_total pass")
        assert view.change_set_id is not None, "\n".join(world.texts(view))
        engine.changes.land(view.change_set_id)
        engine.adaptation.run_round_if_due()
        (fix,) = engine.adaptation.fixes(str(world.repository.path))
        assert fix.title == "Make test_total pass"
        assert fix.template.failing == ("tests/test_cart.py::test_total",)
        assert "\n-    return sum(prices) / len([])\n+    return sum(prices)\n" in fix.template.patch
