"""When your own changes become a card (SPEC 2.3c): documentation that names what is gone."""

from dataclasses import replace

from engine.git.inspection import OwnChanges
from engine.git.stale_mentions import Mention
from engine.prediction.templates.changes import update_docs
from tests.prediction.builders import NOW, get_only, make_session
from tests.prediction.sensing import SensedWorkspace


def test_documentation_is_corrected_once_a_session_showed_it(world: SensedWorkspace):
    context = world.sense()
    own = OwnChanges(mentions=(Mention("notes.md", 1, "total", "sum_up"), Mention("notes.md", 2, "tax")))
    context = replace(context, inspection=replace(context.inspection, own=own))
    assert update_docs(context) == []
    card = get_only(update_docs(replace(context, sessions=(make_session("look_at_mentions", created_at=NOW),))))
    assert card.parameters == {"paths": ["notes.md"]}
    assert card.reasoning.startswith("total → sum_up, in 1 line;"), "only what was clearly renamed"
