"""The habits of a project: files that change together, and the rhythm of its releases (SPEC 2.1)."""

from collections.abc import Sequence

import pytest

from engine.git.habits import DAY_S, CoChanges, Partner, is_preparing_release, is_release_tag, measure_release_rhythm
from engine.git.history import CommitChange
from tests.support import read_table

TABLE = read_table(__file__)


def make_changes(*commits: str) -> list[CommitChange]:
    """Commits by the names of their files, with commas between them and `-` before one that is deleted."""
    return [
        CommitChange(
            str(number), number, 1, "change",
            tuple(sorted(name.lstrip("-") for name in commit.split(","))),
            tuple(name[1:] for name in commit.split(",") if name.startswith("-")),
        )
        for number, commit in enumerate(commits)
    ]  # fmt: skip


OTHERS = ("stock.py", "login.py", "readme.md", "search.py", "stock.py,login.py")
PAIR = ("price.py,rules.toml", *OTHERS) * 12


def make_weekly_releases(releases: int, log: str = "") -> list[CommitChange]:
    """Releases a week apart, each the last of five commits; `log` is a file that one of the five changes."""
    return [
        CommitChange(
            f"{week}.{number}", (7 * week + number) * DAY_S, 1, "change",
            ("a.py", log) if log and number == 1 else ("a.py",),
            tags=(f"v1.{week}.0",) if number == 4 else (),
        )
        for week in range(releases)
        for number in range(5)
    ]  # fmt: skip


def extend_history(history: list[CommitChange], *subjects: str, tags: tuple[str, ...] = ()) -> list[CommitChange]:
    """A history and after it a commit a day, each with the tags."""
    begin = history[-1].committed
    return [
        *history,
        *(
            CommitChange(f"new{number}", begin + number * DAY_S, 1, subject, ("new.py",), (), tags)
            for number, subject in enumerate(subjects, 1)
        ),
    ]


@pytest.mark.parametrize(
    "commits, files, expected",
    [
        (PAIR, ["price.py"], Partner("rules.toml", "price.py", 12, 12)),
        (["price.py,rules.toml"] * 4, ["price.py"], Partner("rules.toml", "price.py", 4, 4)),
        (["price.py,rules.toml"] * 3, ["price.py"], None),
        ((*PAIR, "price.py"), ["price.py"], Partner("rules.toml", "price.py", 12, 13)),
        ((*PAIR, *(["price.py"] * 12)), ["price.py"], None),
        (PAIR, ["price.py", "rules.toml"], None),
        ((*PAIR, "-rules.toml"), ["price.py"], None),
        (
            [f"docs/page{number % 8}.md,mkdocs.yml" for number in range(16)],
            ["docs/page3.md"],
            Partner("mkdocs.yml", "docs/*.md", 16, 16),
        ),
    ],
    ids=["always", "four", "three", "but once", "but often", "both changed", "gone", "a folder"],
)
def test_a_file_that_usually_changes_too_is_found(commits: Sequence[str], files: list[str], expected: Partner | None):
    assert CoChanges(make_changes(*commits)).find_missing_partner(files) == expected


def test_the_rhythm_is_that_of_the_last_releases():
    rhythm = measure_release_rhythm(extend_history(make_weekly_releases(6), "one", "two"))
    assert (rhythm.tag, rhythm.commits, rhythm.usual_days, rhythm.usual_commits) == ("v1.5.0", 2, 7.0, 5)
    assert (rhythm.files, rhythm.preparing) == ({"new.py"}, "")


@pytest.mark.parametrize("commits, days, is_due", TABLE["due_releases"])
def test_a_release_is_due_when_the_wait_and_the_work_are_beyond_the_usual(commits: int, days: int, is_due: bool):
    rhythm = measure_release_rhythm(extend_history(make_weekly_releases(6), *["work"] * commits))
    assert rhythm.is_due(rhythm.at + days * DAY_S) is is_due


def test_a_release_is_due_when_prepared_and_no_longer_when_released():
    prepared = measure_release_rhythm(extend_history(make_weekly_releases(6), "Bump version to 1.6.0"))
    assert prepared.preparing == "Bump version to 1.6.0"
    assert prepared.is_due(prepared.at)
    released = measure_release_rhythm(
        extend_history(make_weekly_releases(6), "Bump version to 1.6.0", tags=("v1.6.0",))
    )
    assert (released.tag, released.preparing) == ("v1.6.0", "")


def test_a_tag_is_of_a_release_or_of_what_comes_before_it():
    assert all(map(is_release_tag, ("v1.2.0", "1.2", "cart-2.0.1", "pkg@1.0.0", "release/1.4", "1.0.post1")))
    others = ("v1.2.0rc1", "1.0-beta.2", "nightly", "v2", "8.0.x", "2.0.0a1", "1.0.dev3")
    assert not any(map(is_release_tag, others))


@pytest.mark.parametrize("subject, is_release", TABLE["release_subjects"])
def test_a_subject_says_whether_it_prepares_a_release(subject: str, is_release: bool):
    assert bool(is_preparing_release(subject)) is is_release
