"""The rhythm of releases, on histories made of values."""

from __future__ import annotations

from math import inf

import pytest

from engine.git.history import Change
from engine.git.releases import DAY, is_release_tag, prepares_release, release_rhythm


def weekly(releases: int, commits: int = 5, log: str = "") -> list[Change]:
    """Releases a week apart, each the last of some commits."""
    return [
        Change(
            f"{week}.{number}", (7 * week + number) * DAY, 1, "change",
            ("a.py", log) if log and number == 1 else ("a.py",),
            tags=(f"v1.{week}.0",) if number == commits - 1 else (),
        )
        for week in range(releases)
        for number in range(commits)
    ]  # fmt: skip


def after(history: list[Change], *subjects: str, tags: tuple[str, ...] = ()) -> list[Change]:
    begin = history[-1].at
    return [
        *history,
        *(Change(f"n{k}", begin + k * DAY, 1, subject, ("new.py",), (), tags) for k, subject in enumerate(subjects, 1)),
    ]


def test_the_rhythm_of_the_last_releases() -> None:
    rhythm = release_rhythm(after(weekly(6), "one", "two"))
    assert rhythm is not None
    assert (rhythm.tag, rhythm.commits, rhythm.usual_days, rhythm.usual_commits) == ("v1.5.0", 2, 7.0, 5)
    assert rhythm.files == {"new.py"}
    assert rhythm.preparing == ""


def test_due_when_both_the_wait_and_the_work_are_beyond_the_usual() -> None:
    rhythm = release_rhythm(after(weekly(6), *["work"] * 8))
    assert rhythm is not None
    assert not rhythm.is_due(rhythm.at + 10 * DAY)
    assert rhythm.is_due(rhythm.at + 11 * DAY)
    little = release_rhythm(after(weekly(6), *["work"] * 7))
    assert little is not None
    assert not little.is_due(little.at + 365 * DAY)


def test_due_when_prepared_and_no_longer_when_released() -> None:
    prepared = release_rhythm(after(weekly(6), "Bump version to 1.6.0"))
    assert prepared is not None
    assert prepared.preparing == "Bump version to 1.6.0"
    assert prepared.is_due(prepared.at)
    released = release_rhythm(after(weekly(6), "Bump version to 1.6.0", tags=("v1.6.0",)))
    assert released is not None
    assert (released.tag, released.preparing) == ("v1.6.0", "")


def test_what_prepared_a_release_that_is_out_prepares_nothing() -> None:
    """A merge brings it after the tag."""
    rhythm = release_rhythm(after(weekly(6), "Release version 1.5.0"))
    assert rhythm is not None
    assert rhythm.preparing == ""


def test_few_releases_have_no_rhythm_but_can_be_prepared() -> None:
    assert release_rhythm([]) is None
    rhythm = release_rhythm(after(weekly(2), "one"))
    assert rhythm is not None
    assert rhythm.usual_days == inf
    assert not rhythm.is_due(rhythm.at + 1000 * DAY)
    prepared = release_rhythm(after(weekly(2), "Release 1.2.0"))
    assert prepared is not None
    assert prepared.is_due(prepared.at)


def test_the_files_that_a_release_usually_comes_with() -> None:
    with_log = release_rhythm(weekly(6, log="CHANGELOG.md"))
    assert with_log is not None
    assert "CHANGELOG.md" in with_log.usual_files
    given_up = release_rhythm([*weekly(2, log="CHANGELOG.md"), *weekly(12)[10:]])
    assert given_up is not None
    assert "CHANGELOG.md" not in given_up.usual_files


@pytest.mark.parametrize(
    ("expected", "tags", "subjects"),
    [
        (
            True,
            ["v1.2.0", "1.2", "cart-2.0.1", "pkg@1.0.0", "release/1.4", "1.0.post1"],
            [
                "Bump version to 1.4.0",
                "release: v2.0",
                "Release 1.0",
                "chore(release): 1.2.3",
                "v0.4",
                "Prepare release 3",
            ],
        ),
        (
            False,
            ["v1.2.0rc1", "1.0-beta.2", "nightly", "v2", "8.0.x", "2.0.0a1", "1.0.dev3"],
            ["Release the lock", "Bump version to 1.5.dev", "start version 8.5.0", "Bump pytest from 7.0 to 8.0"],
        ),
    ],
)
def test_tags_and_subjects_of_releases(expected: bool, tags: list[str], subjects: list[str]) -> None:
    assert {*map(is_release_tag, tags), *map(prepares_release, subjects)} == {expected}
