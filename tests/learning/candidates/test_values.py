"""Effects survive storage, and a candidate takes only legal steps (SPEC 5.3, 5.4)."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model import Refusal
from engine.model.adaptation import (
    CANDIDATE_MOVES,
    CandidateMove,
    CandidateStatus,
    Effect,
    FixTemplate,
    FlowOffload,
    PolicyTweak,
    PromptFragment,
    RoutingHint,
    candidate_after,
    effect_from_json,
)

texts = st.lists(st.text(max_size=20), max_size=4).map(tuple)
numbers = st.none() | st.integers(min_value=0, max_value=10**9)
effects = st.one_of(
    st.builds(PromptFragment, texts),
    st.builds(FixTemplate, texts, texts),
    st.builds(RoutingHint, st.text(), st.text(), numbers, st.text()),
    st.builds(PolicyTweak, numbers, numbers),
    st.builds(FlowOffload, st.text(), st.text(), texts),
)


@given(effects)
def test_an_effect_comes_back_as_it_was(effect: Effect) -> None:
    assert effect_from_json(json.loads(json.dumps(effect.to_json()))) == effect


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"kind": "magic"},
        {"kind": "prompt_fragment"},
        {"kind": "prompt_fragment", "guidance": "one text"},
        {"kind": "fix_template", "failing": ["a"], "repairs": [1]},
        {"kind": "validator_policy_tweak", "tries": -1, "cost": None},
        {"kind": "validator_policy_tweak", "tries": True, "cost": None},
        {"kind": "flow_offload", "name": None, "title": "t", "commands": []},
    ],
)
def test_a_damaged_effect_is_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refused:
        effect_from_json(stored)
    assert refused.value.code == "bad_effect"


@pytest.mark.parametrize(("status", "move"), list(product(CandidateStatus, CandidateMove)))
def test_everything_else_is_refused_in_words(status: CandidateStatus, move: CandidateMove) -> None:
    if (status, move) in CANDIDATE_MOVES:
        assert candidate_after("cand_x", status, move) is CANDIDATE_MOVES[status, move]
        return
    with pytest.raises(Refusal, match="cand_x") as refused:
        candidate_after("cand_x", status, move)
    # where an undo leads follows from what happened: see test_undo.py
    known = {"nothing_to_roll_back"} if move is CandidateMove.ROLL_BACK else {"already_decided", "not_corroborated"}
    assert refused.value.code in known


@given(st.lists(st.sampled_from(list(CandidateMove)), max_size=30))
@settings(max_examples=40, deadline=None)
def test_whatever_is_tried_an_effect_was_reviewed_first(moves: list[CandidateMove]) -> None:
    status, reviewed = CandidateStatus.DRAFTED, False
    for move in moves:
        with suppress(Refusal):
            status = candidate_after("cand_x", status, move)
        reviewed = reviewed or status is CandidateStatus.REVIEW
        assert reviewed or status not in (CandidateStatus.PROMOTED, CandidateStatus.ROLLED_BACK)
