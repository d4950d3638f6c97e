"""What a merge, rebase or the like asks for that was begun and not finished."""

from __future__ import annotations

from engine.git.operation import CONFLICT, Operation
from engine.model.words import count, listing, plain
from engine.prediction.context import WorkspaceContext
from engine.prediction.templates.making import (
    Offer,
    branch_of,
    project_of,
    template,
)

_CALLED = {CONFLICT: "merge of files", "am": "git am"}


@template
def unfinished_operation(context: WorkspaceContext) -> Offer | None:
    """Rehearse both sides; where nothing is in conflict any more, test what there is; say where a bisect stands."""
    git, operation = context.seen, context.looks.unfinished
    if operation is None:
        return None
    called = _CALLED.get(operation.name, operation.name)
    if operation.name == "bisect":
        prompt = "Say what is left of the unfinished bisect"
    elif operation.unmerged:
        prompt = f"Rehearse both sides of the unfinished {called}"
    else:
        prompt = f"Test the unfinished {called} as it stands"
    begun = operation.begun_at
    return Offer(
        prompt,
        _why(operation),
        subject=_subject(operation, branch_of(git)),
        facts={
            "operation": operation.name,
            "theirs": operation.theirs.commit if operation.theirs else "",
            "files": list(map(plain, operation.files[:50])),
            "settled": not operation.unmerged,
            "bisect": [operation.bad, *operation.good],
        },
        parameters={"operation": operation.name, **project_of(context, operation.files)},
        evidence_at=min(begun, context.now) if begun else None,
        about=" ".join(operation.files),
    )


def _subject(operation: Operation, branch: str) -> str:
    """Which of all merges it is: `merge of tax on main`. A rebase is the same one at each of its commits."""
    if operation.name == "rebase":
        return f"rebase of {plain(operation.rebased, 200) or branch} onto {plain(operation.ours.name, 200)}"
    other = f" of {plain(operation.theirs.name, 200)}" if operation.theirs else ""
    return f"{operation.name}{other} on {branch}"


def _why(operation: Operation) -> str:
    if operation.name == "bisect":
        return _bisect(operation)
    theirs = operation.theirs
    what = f"“{plain(theirs.subject, 50)}”" if theirs and theirs.subject else ""
    ours = plain(operation.ours.name, 40)
    begun = {
        "merge": f"Merging {plain(theirs.name, 40) if theirs else ''}{f' ({what})' if what else ''} into {ours}",
        "rebase": f"Rebasing {plain(operation.rebased, 40) or 'HEAD'} onto {ours}",
        "cherry-pick": f"Cherry-picking {what or 'commits'} onto {ours}",
        "revert": f"Reverting {what or 'commits'} on {ours}",
        "am": f"Applying patches to {ours} (git am)",
        CONFLICT: f"A stash or a squashed merge was applied to {ours} and",
    }[operation.name]
    at = f" at {what}" if operation.name == "rebase" and what else ""
    settled = operation.resolved
    marked = f"; {listing(settled, 3)} {'is' if len(settled) == 1 else 'are'} marked as resolved" if settled else ""
    if not operation.unmerged:
        return f"{begun} {f'stopped{at}' if at else 'was begun'} and is not finished{marked}."
    stopped = f"stopped{at} with {count(len(operation.unmerged), 'file')} in conflict"
    return f"{begun} {stopped}: {listing(operation.unmerged, 3)}{marked}."


def _bisect(operation: Operation) -> str:
    bad, good = operation.terms
    if not operation.bad or not operation.good:
        missing = " or ".join(term for term, known in ((bad, operation.bad), (good, operation.good)) if not known)
        return f"A bisect was begun, and no {plain(missing, 40)} revision is named yet."
    return (
        f"A bisect is under way: {count(operation.suspects, 'revision')} left between {plain(good, 20)} "
        f"{operation.good[0][:10]} and {plain(bad, 20)} {operation.bad[:10]}; {operation.ours.name} is checked out."
    )
