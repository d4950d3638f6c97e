"""When your own changes become a card (SPEC 2.3c): documentation that names what is gone, and leftovers."""

from dataclasses import replace

from engine.git.inspection import OwnChanges
from engine.git.stale_mentions import Mention
from engine.prediction.templates.changes import leftovers, update_docs
from tests.prediction.builders import NOW, get_only, make_session
from tests.prediction.sensing import SensedWorkspace
from tests.support.repository import Repository


def test_documentation_is_corrected_once_a_session_showed_it(workspace: SensedWorkspace):
    context = workspace.sense()
    own = OwnChanges(mentions=(Mention("notes.md", 1, "total", "sum_up"), Mention("notes.md", 2, "tax")))
    context = replace(context, inspection=replace(context.inspection, own=own))
    assert update_docs(context) == []
    card = get_only(update_docs(replace(context, sessions=(make_session("look_at_mentions", created_at=NOW),))))
    assert card.parameters == {"paths": ["notes.md"]}
    assert card.reasoning.startswith("total → sum_up, in 1 line;"), "only what was clearly renamed"


def test_a_committed_leftover_in_an_uncommitted_file_is_not_called_uncommitted(
    workspace: SensedWorkspace, repository: Repository
):
    repository.git("switch", "-qc", "rounding")
    repository.commit("three", {"cart.py": "breakpoint()"})
    repository.write("cart.py", "breakpoint()\nx = 1")
    assert get_only(leftovers(workspace.sense())).reasoning == "You added a breakpoint in cart.py:1, not in main yet."
    repository.write("cart.py", "\nimport pdb")
    assert get_only(leftovers(workspace.sense())).reasoning.endswith("in cart.py:2, not committed yet.")
