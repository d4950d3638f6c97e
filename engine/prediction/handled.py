"""Did the operator do himself what a card proposed? (SPEC 2.9, 8.1: chosen 0.7.) One rule a kind, pure.

Asked when a card's evidence is gone. A rule says yes only when what is there now can hardly come from anything but
the proposed work having been done; where that cannot be told there is no rule, and the card goes without a signal:

| kind | done when |
|---|---|
| run_tests | the tests ran after the card was made, at a prompt of his own |
| rehearse_merge | the branch is on the target and no commit of the source is missing: he merged |
| report_branches | one of the branches is gone: he tidied up |

What another card did is no work of his own: its approval says what it says by itself. Nor is what only takes the
evidence away: committing a file is not checking HEAD without it, a tag is not a change log, a test that passes again
was not bisected, and a branch that was merged was not compared with the others.
"""

from __future__ import annotations

from collections.abc import Collection

from engine.prediction.card_rows import Prediction
from engine.prediction.context import WorkspaceContext


def did_himself(card: Prediction, now: WorkspaceContext, own: Collection[str] = ()) -> bool:
    """Whether the state of the workspace says that the operator did what `card` proposed. `own`: sessions that he began
    with prompts of his own."""
    git = now.git
    if git is None:
        return False
    match card.kind:
        case "run_tests":
            return any(run.ran_at > card.created_at and run.session_id in own for run in now.runs)
        case "rehearse_merge":
            on_target = git.branch == card.parameters.get("target") and git.behind_base == 0
            return on_target and any(commit.at > card.created_at for commit in git.recent[:1])
        case "report_branches":
            there = {branch.name for branch in git.branches}
            return any(name not in there for name, _ in card.facts.get("branches", ()))
    return False
