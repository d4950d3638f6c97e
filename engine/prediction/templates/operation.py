"""What a merge, rebase or the like asks for that was begun and not finished."""

from __future__ import annotations

from engine.inspection.operation import CONFLICT, Operation
from engine.prediction.context import WorkspaceContext
from engine.prediction.templates.making import branch_of, offer, project_of
from engine.prediction.words import count, listing, plain
from engine.values import Proposal

_CALLED = {CONFLICT: "merge of files", "am": "git am"}


def unfinished_operation(context: WorkspaceContext) -> list[Proposal]:
    """Rehearse both sides; where nothing is in conflict any more, test what there is; say where a bisect stands."""
    git, operation = context.git, context.looks.unfinished
    if git is None or operation is None:
        return []
    called = _CALLED.get(operation.name, operation.name)
    if operation.name == "bisect":
        prompt = "Say what is left of the unfinished bisect"
    elif operation.unmerged:
        prompt = f"Rehearse both sides of the unfinished {called}"
    else:
        prompt = f"Test the unfinished {called} as it stands"
    begun = operation.begun_at
    return [
        offer(
            context,
            "unfinished_operation",
            prompt,
            _why(operation),
            subject=f"{operation.name} on {plain(operation.rebased, 200) or branch_of(git)}",
            facts={
                "operation": operation.name,
                "theirs": operation.theirs.commit if operation.theirs else "",
                "unmerged": list(map(plain, operation.unmerged[:50])),
                "bisect": [operation.bad, *operation.good],
            },
            parameters={"operation": operation.name, **project_of(context, operation.files)},
            evidence_at=min(begun, context.now) if begun else None,
            about=" ".join(operation.files),
        )
    ]


def _why(operation: Operation) -> str:
    if operation.name == "bisect":
        return _bisect(operation)
    theirs = operation.theirs
    what = f"“{plain(theirs.subject, 50)}”" if theirs and theirs.subject else ""
    ours = plain(operation.ours.name, 40)
    begun = {
        "merge": f"Merging {plain(theirs.name, 40) if theirs else ''} ({what}) into {ours}",
        "rebase": f"Rebasing {plain(operation.rebased, 40) or 'HEAD'} onto {ours}",
        "cherry-pick": f"Cherry-picking {what or 'commits'} onto {ours}",
        "revert": f"Reverting {what or 'commits'} on {ours}",
        "am": f"Applying patches to {ours} (git am)",
        CONFLICT: f"A stash or a squashed merge was applied to {ours} and",
    }[operation.name]
    at = f" at {what}" if operation.name == "rebase" and what else ""
    if not operation.unmerged:
        were = (
            f"; {listing(operation.resolved, 3)} {_is(operation.resolved)} marked as resolved"
            if operation.resolved
            else ""
        )
        return f"{begun} {f'stopped{at}' if at else 'was begun'} and is not finished{were}."
    marked = (
        f"; {listing(operation.resolved)} {_is(operation.resolved)} marked as resolved" if operation.resolved else ""
    )
    stopped = f"stopped{at} with {count(len(operation.unmerged), 'file')} in conflict"
    return f"{begun} {stopped}: {listing(operation.unmerged, 3)}{marked}."


def _is(files: tuple[str, ...]) -> str:
    return "is" if len(files) == 1 else "are"


def _bisect(operation: Operation) -> str:
    bad, good = operation.terms
    if not operation.bad or not operation.good:
        missing = " or ".join(term for term, known in ((bad, operation.bad), (good, operation.good)) if not known)
        return f"A bisect was begun, and no {plain(missing, 40)} revision is named yet."
    return (
        f"A bisect is under way: {count(operation.suspects, 'revision')} left between {plain(good, 20)} "
        f"{operation.good[0][:10]} and {plain(bad, 20)} {operation.bad[:10]}; {operation.ours.name} is checked out."
    )
