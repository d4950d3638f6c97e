"""What stays away after a dismissal, and for how long (SPEC 2.9)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model import DismissReason
from engine.prediction.dismissals import Dismissal, MuteIndex, active_mutes

NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
SHOP, SITE = "/shop", "/site"


def dismissed(
    number: int = 0,
    *,
    at: datetime = NOW,
    kind: str = "bisect",
    subject: str = "test_cart",
    workspace: str = SHOP,
    reason: DismissReason | None = None,
    subject_counts: bool = True,
    kind_counts: bool = True,
) -> Dismissal:
    return Dismissal(f"pred_{number}", workspace, kind, subject, at, reason, subject_counts, kind_counts)


def covered(those: list[Dismissal], now: datetime, *about: str) -> bool:
    workspace, kind, subject = about or (SHOP, "bisect", "test_cart")
    return MuteIndex(active_mutes(those, now)).covers(workspace, kind, subject, 3)


@pytest.mark.parametrize(("times", "days"), [(1, 7), (2, 14), (3, 28)])
def test_a_subject_stays_away_until_the_very_minute(times: int, days: int) -> None:
    those = [dismissed(number, at=NOW - number * DAY, kind_counts=False) for number in range(times)]
    assert covered(those, NOW + days * DAY - MINUTE)
    assert not covered(those, NOW + days * DAY)


def test_work_already_done_is_no_rejection() -> None:
    done = [dismissed(number, reason=DismissReason.ALREADY_DONE) for number in range(5)]
    assert covered(done, NOW + 7 * DAY - MINUTE)
    assert not covered(done, NOW + 7 * DAY), "nothing doubles"
    assert not covered(done, NOW, SHOP, "bisect", "another"), "the kind stays on"


DISMISSALS = st.lists(
    st.builds(
        dismissed,
        st.integers(0, 10_000),
        at=st.integers(0, 100).map(lambda days: NOW - days * DAY),
        kind=st.sampled_from(["bisect", "lint"]),
        subject=st.sampled_from(["a", "b", "c"]),
        workspace=st.sampled_from([SHOP, SITE]),
        reason=st.sampled_from([None, *DismissReason]),
        subject_counts=st.booleans(),
        kind_counts=st.booleans(),
    ),
    max_size=12,
    unique_by=lambda one: one.card,
)


@given(DISMISSALS, st.randoms(use_true_random=False))
def test_the_order_of_rows_says_nothing(those: list[Dismissal], random: object) -> None:
    mixed = list(those)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert active_mutes(mixed, NOW) == active_mutes(those, NOW)


@given(DISMISSALS)
def test_each_mute_has_an_id_of_its_own_and_covers_what_it_names(those: list[Dismissal]) -> None:
    found = active_mutes(those, NOW)
    assert len({item.id for item in found}) == len(found)
    for mute in found:
        assert mute.until is None or mute.until > NOW
        assert (mute.until is None) is (mute.subject == "")
        assert MuteIndex([mute]).covers(mute.workspace or SITE, mute.kind, mute.subject or "anything", 3)


@given(DISMISSALS, st.integers(0, 5_000))
def test_time_alone_only_brings_subjects_back(those: list[Dismissal], days: int) -> None:
    now = {mute.id for mute in active_mutes(those, NOW)}
    later = active_mutes(those, NOW + days * DAY)
    assert {item.id for item in later} <= now
    assert {mute.id for mute in active_mutes(those, NOW) if mute.until is None} <= {item.id for item in later}
