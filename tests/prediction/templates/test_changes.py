"""When your own changes become a card (SPEC 2.3c): documentation that names what is gone, and leftovers."""

from dataclasses import replace

from engine.git.inspection import OwnChanges
from engine.git.leftovers import Leftover
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
    repository.commit("three", {"cart.py": "# TODO"})
    repository.path.joinpath("cart.py").write_text("# TODO\nx = 1")
    context = workspace.sense()
    inspection = replace(context.inspection, own=OwnChanges(leftovers=(Leftover("TODO", "cart.py", 1),)))
    card = get_only(leftovers(replace(context, inspection=inspection)))
    assert card.reasoning == "You added a TODO in cart.py:1, not in main yet."
