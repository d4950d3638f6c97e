"""What usually changes together, on histories made of values."""

from __future__ import annotations

from engine.git import co_changes
from engine.git.co_changes import CoChanges, Partner, is_group
from engine.git.history import Change


def history(*commits: str) -> list[Change]:
    """A commit a word: its files apart by commas; `-` before one that is deleted."""
    return [
        Change(
            str(number), number, 1, "change",
            tuple(sorted(name.lstrip("-") for name in commit.split(","))),
            tuple(name[1:] for name in commit.split(",") if name.startswith("-")),
        )
        for number, commit in enumerate(commits)
    ]  # fmt: skip


OTHERS = ("stock.py", "login.py", "readme.md", "search.py", "stock.py,login.py")
PAIR = ("price.py,rules.toml", *OTHERS) * 12


def missing(habits: CoChanges, *files: str) -> str | None:
    partner = habits.missing(files)
    return partner.path if partner else None


def test_the_partner_with_its_evidence() -> None:
    partner = CoChanges(history(*PAIR)).missing(["price.py"])
    assert partner is not None
    assert partner == Partner("rules.toml", "price.py", 12, 12, partner.score)
    assert 0.8 < partner.score < 1.0


def test_a_tie_of_two_commits_is_none() -> None:
    assert missing(CoChanges(history(*OTHERS, *OTHERS, "a.py,b.py", *OTHERS, "a.py,b.py")), "a.py") is None


def test_one_exception_does_not_untie_and_many_do() -> None:
    assert missing(CoChanges(history(*PAIR, "price.py")), "price.py") == "rules.toml"
    assert missing(CoChanges(history(*PAIR, *(["price.py"] * 12))), "price.py") is None


def test_sweeps_tie_nothing() -> None:
    everything = ",".join(f"f{number}.py" for number in range(co_changes.MAX_FILES + 1))
    habits = CoChanges(history(*[everything] * 30))
    assert missing(habits, "f1.py") is None


def test_many_changed_files_are_not_asked_about() -> None:
    habits = CoChanges(history(*PAIR))
    assert missing(habits, "price.py", *(f"new{number}.txt" for number in range(co_changes.MAX_CHANGED))) is None


def test_a_file_that_is_gone_is_not_missing_until_it_is_back() -> None:
    assert missing(CoChanges(history(*PAIR, "-rules.toml")), "price.py") is None
    assert missing(CoChanges(history(*PAIR, "-rules.toml", "price.py,rules.toml")), "price.py") == "rules.toml"


def test_files_of_a_folder_share_their_habits() -> None:
    pages = [f"docs/page{number % 8}.md,mkdocs.yml" for number in range(16)]
    partner = CoChanges(history(*[other for page in pages for other in (page, *OTHERS)])).missing(["docs/page3.md"])
    assert partner is not None
    assert (partner.path, partner.because, partner.together, partner.of) == ("mkdocs.yml", "docs/*.md", 16, 16)
    assert is_group(partner.because)
    assert not is_group(partner.path)


def test_only_the_past_is_known() -> None:
    habits = CoChanges(history(*PAIR))
    assert habits.missing(["price.py"], before=2) is None
    whole = CoChanges(history(*PAIR[:40]))
    assert habits.missing(["price.py"], before=40) == whole.missing(["price.py"])


def test_a_project_without_habits_has_a_higher_bar() -> None:
    """Where every third commit of a pair leaves its partner out, its own commits would often have been called
    incomplete."""
    regular = CoChanges(history(*("a.py,b.py", "c.py,d.py", "e.py") * 60))
    loose = CoChanges(history(*("a.py,b.py,x.py", "c.py,d.py", "a.py,b.py,x.py", "a.py,x.py", "e.py") * 60))
    assert regular.threshold() == co_changes.MIN_THRESHOLD
    assert loose.threshold() > co_changes.MIN_THRESHOLD


def test_merges_do_not_count() -> None:
    merges = [Change("m", 0, 2, "merge") for _ in range(50)]
    assert missing(CoChanges([*history(*PAIR), *merges]), "price.py") == "rules.toml"


def test_what_changed_alone_as_often_is_no_partner() -> None:
    assert missing(CoChanges(history(*("price.py,rules.toml", "price.py") * 12)), "price.py") is None
