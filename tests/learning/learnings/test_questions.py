"""Answers of models about sessions and learnings: only the required form counts (SPEC 6.4, 6.6)."""

import json
from typing import Any

import pytest

from engine.learning.learnings.findings import Basis, Impact, SessionRecord
from engine.learning.learnings.questions import MAX_SESSION_CHARS, make_session_text, read_claims, read_verdict
from engine.model import TranscriptLine
from tests.conftest import MONDAY_MORNING
from tests.learning.learnings.chain_world import make_view

CLAIM = {"text": "Amounts are cents", "scope": "corrective", "about": "team", "type": "directive"}


@pytest.mark.parametrize(
    "answer, generalises",
    [
        ('{"generalises": true, "reason": "it always helps"}', True),
        ('```\n{"generalises": true}\n```', True),
        ('{"generalises": false, "reason": "only here"}', False),
        ("", None),
        ("[true]", None),
        ('{"generalises": "true"}', None),
        ('{"generalises": 1, "reason": "x"}', None),
        ('{"generalises": null}', None),
        ('I think so: {"generalises": true}', None),
        ("[" * 5000, None),
    ],
)
def test_a_verdict_is_the_object_that_was_asked_for_or_none(answer: str, generalises: bool | None):
    assert read_verdict(answer).generalises is generalises


def test_at_most_six_claims_are_read_with_the_confidence_of_a_claim():
    claims = read_claims(f"```json\n{json.dumps({'learnings': [CLAIM] * 9})}\n```", Impact())
    assert [(claim.basis, claim.phase) for claim in claims] == [(Basis.MODEL, "corrective")] * 6


@pytest.mark.parametrize(
    "learnings",
    [
        {},
        [CLAIM | {"scope": "global"}],
        [CLAIM | {"about": "me"}],
        [CLAIM | {"type": "poem"}],
        [CLAIM | {"text": "x" * 401}],
        [CLAIM | {"text": "the key is sk-test-0123456789abcdefghijklmnop"}],
        [{"text": 5}],
    ],
    ids=["no list", "scope", "about", "type", "too long", "secret", "no text"],
)
def test_an_answer_with_a_bad_claim_is_refused(learnings: Any):
    with pytest.raises(ValueError, match="the answer"):
        read_claims(json.dumps({"learnings": learnings}), Impact())


@pytest.mark.parametrize("answer", ["no", "{}"])
def test_an_answer_in_another_form_is_refused(answer: str):
    with pytest.raises(ValueError, match="the answer"):
        read_claims(answer, Impact())


@pytest.mark.parametrize("prompt", ["x" * number for number in range(0, 300, 7)])
def test_a_long_session_is_cut_between_lines(prompt: str):
    said = f"{'y' * 200} reply: do what the file says"
    lines = [TranscriptLine(number, MONDAY_MORNING, "say", said) for number in range(200)]
    text = make_session_text(SessionRecord(make_view("s1", prompt=prompt)), lines)
    assert len(text) <= MAX_SESSION_CHARS
    first, *others = text.splitlines()[2:]
    assert {first, *others} == {f"say: {said}"}
