"""The policy of an agent decides about a call by its lists: deny before ask before allow (SPEC 4.1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.tools import TOOL_NAMES, Policy
from engine.model import Verdict
from engine.safety.content.commands import find_programs
from tests.support import read_table

TABLE = read_table(__file__)

ALLOW, ASK, BLOCK = Verdict.ALLOW, Verdict.ASK, Verdict.BLOCK


def decide(policy: Policy, command: str) -> Verdict:
    return policy.decide("exec", (command, *find_programs(command))).verdict


def test_deny_wins_over_ask_over_allow():
    entries = ("exec", "exec:git push*")
    assert decide(Policy(allow=entries, ask=entries, deny=entries[1:]), "git push") is BLOCK
    assert decide(Policy(allow=entries, ask=entries), "git push") is ASK
    assert decide(Policy(allow=entries), "git push") is ALLOW


@pytest.mark.parametrize("command", TABLE["spellings"])
def test_no_spelling_slips_past_a_deny(command: str):
    assert decide(Policy(allow=("exec",), deny=("exec:git push*",)), command) is BLOCK
    assert decide(Policy(allow=("exec",), ask=("exec:git push*",)), command) is ASK


@pytest.mark.parametrize("command", TABLE["compound_commands"])
def test_a_compound_command_is_not_allowed_by_its_beginning(command: str):
    policy = Policy(allow=("exec:git status*",))
    assert decide(policy, command) is BLOCK
    assert decide(policy, "git status -s") is ALLOW
    assert decide(policy, "git push") is BLOCK


def test_patterns_apply_to_paths_and_hosts():
    policy = Policy(allow=("read", "write:docs/*", "web_fetch", "web_fetch:*.python.org"), deny=("read:*.pem",))
    assert policy.decide("write", ("docs/a/b.md",)).verdict is ALLOW
    assert policy.decide("write", ("src/a.py",)).verdict is BLOCK
    assert policy.decide("write", ("docs/a.md", "src/a.py")).verdict is BLOCK, "all of them must be allowed"
    assert policy.decide("read", ("keys/x.pem",)).verdict is BLOCK
    assert policy.decide("read", ("a.py", "keys/x.pem")).verdict is BLOCK
    assert policy.decide("web_fetch", ("docs.python.org", "docs.python.org", "https://docs.python.org/")).is_by_pattern
    assert not policy.decide("web_fetch", ("example.org", "example.org", "https://example.org/")).is_by_pattern


TOOLS = st.sets(st.sampled_from(TOOL_NAMES))


@given(TOOLS, TOOLS, TOOLS)
def test_exactly_the_tools_that_may_be_allowed_are_offered(allow: set[str], ask: set[str], deny: set[str]):
    policy = Policy(tuple(allow), tuple(ask), tuple(f"{name}: *" for name in deny))
    for name in TOOL_NAMES:
        verdict = policy.decide(name, ("x",)).verdict
        if name in deny:
            assert verdict is BLOCK
        elif name in ask:
            assert verdict is ASK
        else:
            assert verdict is (ALLOW if name in allow else BLOCK)
        assert policy.is_offered(name) is (verdict is not BLOCK)
