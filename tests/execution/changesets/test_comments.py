"""Comments on lines of a change set, which go to the agent as one message, or stay as notes (SPEC 3.9)."""

import pytest

from tests.execution.changesets.landing_world import Change, LandingWorld, make_edits
from tests.support.helpers import refused


@pytest.fixture
def change(world: LandingWorld) -> Change:
    """A change set that adds a line to a.txt and deletes b.txt."""
    return world.make_change(make_edits({"a.txt": "1\n2\n3\nfour\n", "b.txt": None}))


def test_comments_quote_a_line_of_the_new_or_the_old_file(world: LandingWorld, change: Change):
    events = world.bus.subscribe(lambda: None)
    comments = world.changes.comments
    comments.add(change.id, "a.txt", 4, "write 4\x1b[2J instead")
    [first, second] = comments.add(change.id, "b.txt", 1, "keep it", old=True).comments
    assert (first.quote, first.text, first.old) == ("four", "write 4 instead", False)
    assert (second.quote, second.text, second.old) == ("b", "keep it", True)
    assert [event.kind for event in events.drain()] == ["ChangeSetCommented"] * 2


def test_the_message_to_the_agent_has_each_comment_with_its_place_and_quote(world: LandingWorld, change: Change):
    comments = world.changes.comments
    comments.add(change.id, "a.txt", 4, "write 4 instead")
    comments.add(change.id, "b.txt", 1, "keep it", old=True)
    text, numbers = comments.make_unsent_message(change.id)
    assert numbers == (1, 2)
    assert text.split("\n\n") == [
        "Comments on “Fix the cart”. Address each of them.",
        "a.txt:4\n> four\nwrite 4 instead",
        "b.txt:1 (before your change)\n> b\nkeep it",
    ]


@pytest.mark.parametrize(
    "path, line, text, code",
    [
        ("a.txt", 5, "no", "unknown_line"),
        ("b.txt", 1, "no", "unknown_line"),
        ("c", 1, "no", "unknown_file"),
        ("a.txt", 1, "  \n", "bad_comment"),
    ],
)
def test_a_comment_without_a_line_or_a_text_is_refused(
    world: LandingWorld, change: Change, path: str, line: int, text: str, code: str
):
    refused(code, lambda: world.changes.comments.add(change.id, path, line, text))


def test_comments_are_sent_once_and_can_be_removed(world: LandingWorld, change: Change):
    comments = world.changes.comments
    comments.add(change.id, "a.txt", 4, "write 4 instead")
    comments.add(change.id, "b.txt", 1, "keep it", old=True)
    _, numbers = comments.make_unsent_message(change.id)
    comments.add(change.id, "a.txt", 1, "and this, while they are sent")

    sent_at = world.clock.now().isoformat()
    assert [comment.sent for comment in comments.mark_sent(change.id, numbers).comments] == [sent_at, sent_at, ""]
    assert comments.make_unsent_message(change.id)[1] == (3,)
    comments.remove(change.id, 3)
    refused("no_comments", lambda: comments.make_unsent_message(change.id))
    assert [comment.number for comment in comments.remove(change.id, 1).comments] == [2]
    refused("unknown_comment", lambda: comments.remove(change.id, 1))
    change.discard()
    assert [comment.text for comment in change.current.comments] == ["keep it"]
