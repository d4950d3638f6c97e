"""Pull requests that wait for the operator."""

from __future__ import annotations

from engine.git.github import For, PullRequest
from engine.model import Proposal
from engine.model.words import moment, plain
from engine.prediction.context import WorkspaceContext
from engine.prediction.templates.making import (
    Offer,
    proposed,
    usable,
)

MOST = 3
_ORDER = (For.CHANGES, For.REVIEW, For.ANSWER)
_ASKS = {
    For.REVIEW: "asks you for a review of",
    For.CHANGES: "asked for changes in your",
    For.ANSWER: "commented on your",
}


def pull_request(context: WorkspaceContext) -> list[Proposal]:
    """A review is asked of you, or somebody waits for what you do about your own pull request."""
    if context.git is None or context.github is None:
        return []
    waiting = [(request, _ORDER.index(request.wait.what)) for request in context.github.pull_requests if request.wait]
    return [_card(context, one) for one, _ in sorted(waiting, key=lambda pair: (pair[1], pair[0].number))[:MOST]]


def _card(context: WorkspaceContext, request: PullRequest) -> Proposal:
    wait = request.wait
    assert wait is not None
    title, name = plain(request.title, 50), plain(wait.by, 40) or "Somebody"
    since = f" ({moment(wait.since, context.local)})" if wait.since else ""
    told = f"{name} {_ASKS[wait.what]} pull request #{request.number}{since}"
    offer = Offer(
        f"Look at pull request #{request.number} “{title}”",
        f"{told}.",
        subject=f"pull request {request.number}",
        facts={"number": request.number, "waits": wait.what.value, "by": wait.by, "since": str(wait.since or "")},
        parameters={
            "number": request.number,
            "title": title,
            "url": request.url if usable(request.url) else "",
            "branch": request.branch if usable(request.branch) else "",
            "waits": f"{told}.",
            "mine": request.mine,
        },
        evidence_at=wait.since,
        about=f"{title} {request.branch}",
    )
    return proposed(context, "pull_request", offer)
