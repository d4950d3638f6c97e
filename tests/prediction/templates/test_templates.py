"""Rules of every proposal: its fields, its fingerprint and subject, and hostile names (SPEC 2.1, 2.3c, 2.9)."""

import json
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from engine.execution.runners.flows import FLOWS
from engine.prediction import KINDS
from engine.prediction.signals import WEIGHTS
from engine.prediction.templates.commits import secret
from engine.prediction.templates.offers import find_day_begin, is_usable, is_usable_path
from tests.prediction.builders import NOW, make_session, propose_all
from tests.prediction.sensing import SensedWorkspace
from tests.support.repository import Repository

DAY = timedelta(days=1)


def test_every_proposal_has_what_a_card_needs(workspace: SensedWorkspace, repository: Repository):
    repository.git("branch", "done", "main~1")
    repository.git("checkout", "-q", "-b", "feature/x", "main~1")
    repository.commit("x", {"x.py": "1"}, at=NOW - DAY)
    repository.write("cart.py", "4")
    repository.write("cart_new.py", "4")
    workspace.sessions = [make_session("lint", facts={"rules": {"F401": 1}})]
    proposals = propose_all(workspace.sense())
    assert len({proposal.kind for proposal in proposals}) >= 6
    assert len({proposal.fingerprint for proposal in proposals}) == len(proposals)
    for proposal in proposals:
        assert proposal.flow == KINDS[proposal.kind].flow
        assert proposal.tier is KINDS[proposal.kind].tier
        assert proposal.workspace == str(workspace.path)
        assert [signal.name for signal in proposal.signals] == list(WEIGHTS)
        assert all(0.0 <= signal.relevance <= 1.0 and signal.evidence for signal in proposal.signals)
        assert 0 < len(proposal.prompt) <= 120
        assert 0 < len(proposal.reasoning) <= 160
        assert proposal.channel
        assert proposal.evidence_at is not None
        assert proposal.usual_hours > 0
        json.dumps([dict(proposal.facts), dict(proposal.parameters)])
        FLOWS[proposal.flow or ""].model_validate(dict(proposal.parameters))


def test_hostile_names_neither_reach_the_screen_nor_a_parameter(workspace: SensedWorkspace, repository: Repository):
    repository.commit("evil \x1b]0;gone\x07 subject\x1b[2J", {"bad\x1b[31m.py": "1", "-rf.py": "1", "ok.py": "1"})
    repository.git("tag", "v1\u202e2", "HEAD~1")
    repository.write("bad\x1b[31m.py", "2")
    repository.write("new\nline.py", "2")
    (repository.path / b"caf\xe9.py".decode(errors="surrogateescape")).write_text("1")
    repository.write("ok.py", "2")
    for branch in ("--output=x", "x\u202e"):
        repository.git("update-ref", f"refs/heads/{branch}", "HEAD~1")
    for proposal in propose_all(workspace.sense()):
        evidence = [line for signal in proposal.signals for line in signal.evidence]
        text = "".join([proposal.prompt, proposal.reasoning, *evidence])
        assert not any(ord(character) < 32 or character == "\u202e" for character in text)
        FLOWS[proposal.flow or ""].model_validate(dict(proposal.parameters))
        parameters = json.dumps(dict(proposal.parameters), ensure_ascii=False)
        parameters.encode()
        assert "\\u001b" not in parameters
        for value in proposal.parameters.values():
            for name in value if isinstance(value, list) else [value]:
                assert name == "-rf.py" or not str(name).startswith("-")  # a file of the repository is no option


@pytest.mark.parametrize("name", ["", "-x", " x", "x ", "a\nb", "a\x1bb", "a\u202eb", "caf\udce9"])
def test_a_name_that_is_hidden_broken_or_an_option_becomes_no_parameter(name: str):
    assert not is_usable(name)
    assert is_usable_path(name) == (name == "-x")


def test_a_working_day_begins_at_five_also_when_the_clocks_change():
    begin = find_day_begin(datetime(2026, 10, 25, 19, tzinfo=ZoneInfo("Europe/Berlin")))
    assert begin.isoformat() == "2026-10-25T05:00:00+01:00"
    assert find_day_begin(begin) == begin
    assert find_day_begin(begin - timedelta(minutes=1)).isoformat() == "2026-10-24T05:00:00+02:00"


# Subjects

KEY = "AK" + "IA" + "Q7W2E9R4T1Y8U3I6"
TOKEN = "glp" + "at-" + "x7Kq2mWz9RtB4vNc8LpS"
"""Made-up secrets. They are put together here, so that no scanner takes this file for a leak."""


def test_another_secret_in_the_same_file_is_another_subject(workspace: SensedWorkspace, repository: Repository):
    repository.write("cart.py", f'KEY = "{KEY}"\n')
    [first] = secret(workspace.sense())
    assert first.subject == "AWS access key in cart.py"
    repository.write("cart.py", f'KEY = "{KEY}"\nHOST = "{TOKEN}"\n')
    [both] = secret(workspace.sense())
    assert both.subject == "AWS access key in cart.py, GitLab token in cart.py"
    repository.commit("Configure")
    [committed] = secret(workspace.sense())
    assert committed.subject == both.subject, "a commit does not change the subject"
