"""Profiles of leaders (SPEC 1.9): the soul seeds them, edits win and stay in the history, and rows may come in any
order."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.hierarchy.profile_rows import ProfileEntry, select_newest
from engine.hierarchy.profile_text import format_profile, make_slug, parse_edits, seed_profile
from engine.model import LeaderProfile, ProfileItem
from engine.storage.erasing import SearchTerms
from tests.hierarchy.guidance_world import Organisation, edit_profile
from tests.support import read_table
from tests.support.checks import refused

TABLE = read_table(__file__)


BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def test_fenced_code_comments_and_the_inherited_section_are_no_principles():
    soul = (
        "# X\n### Principles:\n* one\n1) two\nthree\n```\n## Principles\n- code\n```\n<!-- note -->\n## Other\n- no\n"
        "<!-- clawpy:inherited-wisdom -->\n## Principles\n- inherited\n<!-- /clawpy:inherited-wisdom -->\n"
    )
    assert seed_profile("x", soul).principles == ("one", "two", "three")


@given(st.text())
def test_any_soul_seeds_a_profile(soul: str):
    profile = seed_profile("x", "## Principles\n" + soul)
    assert all("\n" not in principle and len(principle) <= 600 for principle in profile.principles)
    assert make_slug(soul)


@pytest.mark.parametrize("section, value, code", TABLE["edits"])
def test_an_edit_that_its_section_cannot_hold_is_refused(
    world: Organisation, section: str, value: str | list[str], code: str
):
    refused(code, lambda: edit_profile(world.profiles, "cto", section, value=value))


ENTRIES = st.builds(
    ProfileEntry,
    leader=st.just("cto"),
    section=st.just("patterns"),
    key=st.sampled_from(["a", "b"]),
    texts=st.sampled_from([("x",), ("y",), ()]),
    at=st.integers(0, 3).map(lambda seconds: BEGIN + timedelta(seconds=seconds)),
    origin=st.sampled_from(["home_1", "home_2"]),
)


@settings(max_examples=40)
@given(st.lists(ENTRIES, max_size=12, unique_by=lambda entry: entry.identity), st.randoms(use_true_random=False))
def test_the_newest_wins_in_whatever_order_rows_come(entries: list[ProfileEntry], random: Random):
    shuffled = [*entries, *entries[:3]]
    random.shuffle(shuffled)
    assert select_newest(entries) == select_newest(shuffled)
    for (_, key), winner in select_newest(entries).items():
        assert winner.at == max(entry.at for entry in entries if entry.key == key)


WORDS = st.lists(st.sampled_from(["Write", "tests:", "first", "it's", "- dash", "# no", "<b>"]), min_size=1).map(
    " ".join
)


def draw_items(*keys: str) -> st.SearchStrategy[tuple[ProfileItem, ...]]:
    """Items with some of these keys."""
    return st.dictionaries(st.sampled_from(keys), WORDS).map(
        lambda texts: tuple(ProfileItem(key, text) for key, text in texts.items())
    )


PROFILES = st.builds(
    LeaderProfile,
    leader=st.just("cto"),
    domain=st.sampled_from(["", "code tests"]),
    principles=st.lists(WORDS, max_size=3).map(tuple),
    guardrails=st.lists(WORDS, max_size=3).map(tuple),
    patterns=draw_items("p1", "p2", "six_words_and_one_more_0_1a2b3"),
    decisions=draw_items("cap_5", "soul_1"),
)


@settings(max_examples=40)
@given(PROFILES)
def test_a_profile_that_was_not_edited_changes_nothing(profile: LeaderProfile):
    assert parse_edits(profile, format_profile(profile)) == ()


def test_an_undo_does_not_bring_back_what_was_forgotten(world: Organisation):
    for text in ("The staging password is hunter2 for Jan.", "Ask the operator."):
        edit_profile(world.profiles, "lead", "patterns", key="staging", value=text)
    world.profiles.erase(SearchTerms(["hunter2"]))
    refused("nothing_to_undo", lambda: world.profiles.undo("lead"))
    assert world.profiles.read("lead").find_text("patterns", "staging") == "Ask the operator."
