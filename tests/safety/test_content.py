"""The content filter (SPEC 3.5): examples of every rule, lists of ordinary and destructive work, prompts, parameters,
and a bound on time for any input."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model import Assignment, RailVerdict, Verdict
from engine.safety.content import prompts, rulebook, targets
from engine.safety.content.commands import check_command, load_text_rules
from engine.safety.content.prompts import check_assignment, check_prompt
from engine.safety.content.shell import parse
from tests.safety.examples import read_examples
from tests.support import read_table

TABLE = read_table(__file__)


def test_a_rule_on_commands_stops_and_passes_its_examples():
    rules = (*rulebook.load_command_rules(), *targets.load_target_rules(), *load_text_rules().values())
    stops = [(rule, text, check_command(text)) for rule in rules for text in rule.stops]
    assert [
        (rule.id, text) for rule, text, found in stops if (found.rule, found.verdict) != (rule.id, rule.verdict)
    ] == []
    passes = [(rule.id, text) for rule in rules for text in rule.passes]
    assert [(rule, text) for rule, text in passes if check_command(text).rule == rule] == []


def test_a_rule_on_prompts_stops_and_passes_its_examples():
    stops = [(rule, text) for rule in prompts.load_prompt_rules() for text in rule.stops]
    assert [text for rule, text in stops if check_prompt(text).verdict is not rule.verdict] == []
    passes = [text for rule in prompts.load_prompt_rules() for text in rule.passes]
    assert [text for text in passes if check_prompt(text).verdict is not Verdict.ALLOW] == []


def test_the_parameters_and_the_channel_of_an_assignment_are_checked():
    def check(channel: str = "koji-core", **parameters: object) -> Verdict:
        return check_assignment(Assignment("run it", channel, "/w", "flow", "x", parameters), {"koji-core"}).verdict

    assert check() is Verdict.ALLOW
    assert check(paths=["src/a.py"], test="tests/test_a.py::test_b") is Verdict.ALLOW
    assert check(test="$(rm -rf /)`rm -rf /`") is Verdict.BLOCK
    assert check(channel="elsewhere") is Verdict.BLOCK


@pytest.mark.parametrize(
    "prompt, parameters, expected",
    [
        ("Run the tests of x; rm -rf ~/conf.py", {"paths": ["x; rm -rf ~/conf.py"]}, Verdict.ALLOW),
        ("Run the tests", {"paths": ["a.py", "rm -rf /"]}, Verdict.ALLOW),
        ("rm -rf ~/conf.py", {"paths": ["x; rm -rf ~/conf.py"]}, Verdict.BLOCK),  # the prompt has more than the name
        ("rm -rf ~/conf.py", {"paths": ["rm"]}, Verdict.BLOCK),  # a name that is no command is not left out
        ("Run x", {"paths": ["a.py"], "command": ["rm -rf ~"]}, Verdict.BLOCK),  # of the same flow, but no name
    ],
)
def test_a_name_in_a_parameter_is_data(prompt: str, parameters: dict[str, object], expected: Verdict):
    assignment = Assignment(prompt, "koji-core", "/w", "flow", "x", parameters)
    assert check_assignment(assignment, {"koji-core"}, data={"paths"}).verdict is expected
    assert check_assignment(assignment, {"koji-core"}).verdict is Verdict.BLOCK


def test_the_name_of_a_test_in_the_title_of_a_card_runs_nothing():
    parameters = {"tests": ["test_cart.py::test_total[$HOME]"]}
    assignment = Assignment("Run `test_total[$HOME]` again", "koji-core", "/w", "flow", "x", parameters)
    assert check_assignment(assignment, {"koji-core"}, data={"tests"}).verdict is Verdict.ALLOW


@settings(max_examples=300)
@given(st.text(alphabet="rm -rf/ ;|&$(){}`'\"\\<>#\n=xabc~*!", max_size=120) | st.text(max_size=200))
def test_any_text_has_a_verdict(text: str):
    parse(text)
    check_command(text)
    check_prompt(text)


HOSTILE = [
    "$(" * 12_000, "`" * 24_000, "((((" * 6_000, "{a," * 8_000, "${" * 12_000, "<(" * 12_000, '"$(' * 8_000,
    "'" * 24_000, "<<A\n" * 6_000, "a|" * 12_000, "sudo " * 5_000, "env -S " * 3_000, "echo x | " * 2_700 + "sh",
    "\\\n" * 12_000, "x" * 1_000_000, "eval " * 4_800, "bash -c " * 3_000, "A=$A$A; " * 3_000, "$IFS " * 4_800,
    "find . -exec " * 1_800, "rm -rf a " * 2_600, ":(){" * 6_000, "delete " * 8_000, "send a b c " * 5_000,
    "aA0+" * 15_000, "`ab` " * 12_000, "run run " * 7_000, "drop /*" * 8_000, "python -c 'system(" * 1_300,
    "git " * 6_000, "xargs " * 4_000, "'rm -rf /' " * 2_000, "update a set b " * 4_000, "```\n" * 15_000,
    "$[" * 4_000, "{a,b}" * 1_600, "let " + "[" * 7_900,
    "${a$(" * 4_800, "a() { a | a &" * 1_800, "push " * 12_000, "\u0430" * 60_000, "transfer a " * 5_000,
    "{;" * 2_000 + ")" * 3_900, "(sh|" * 250 + "sh" + ")" * 250, "tee " + ">(sh) " * 1_300, "a" + " | at" * 250,
    "{ " + "python;" * 290 + "} <<E\n" + "system('ls a');" * 390 + "\nE",
    "{ " + "node;" * 290 + "} <<E\n" + '"' * 5_900 + "\nE",
    "a $(" + "b " * 1_500 + ") | (" + "bash; " * 290 + ")", "{ " + "psql;" * 290 + "} <<E\n" + "drop " * 1_200 + "\nE",
    f"echo '{'x=1;' * 1_100}' | {{ {' '.join(f'{{ cat; echo {i}; }} | python;' for i in range(99))} }}",
]  # fmt: skip
"""Long texts that a careless parser would read again and again."""


@pytest.mark.parametrize("check", [check_command, check_prompt])
@pytest.mark.parametrize(
    "limit_s",
    [
        pytest.param(1.0, id="cost does not grow with the square"),  # which takes minutes, on any machine
        pytest.param(0.05, id="50 ms", marks=pytest.mark.benchmark),
    ],
)
def test_no_input_takes_long(check: Callable[[str], object], limit_s: float):
    def measure_seconds(text: str) -> float:
        begin = time.thread_time()  # of this thread: other programs on the machine do not count
        check(text)
        return time.thread_time() - begin

    # One run at a good moment will do.
    slow = [text[:20] for text in HOSTILE if all(measure_seconds(text) > limit_s for _ in range(3))]
    assert slow == []


def read_quotable_commands(name: str) -> list[str]:
    """The commands of a list that can stand in one line between backticks."""
    return [text for text in read_examples(name) if "\n" not in text and "`" not in text]


@pytest.mark.parametrize(
    "name, check",
    [
        ("ordinary_commands", check_command),
        ("looking_commands", check_command),
        ("ordinary_shell", check_command),
        ("creative_safe", check_command),
        ("ordinary_prompts", check_prompt),
    ],
)
def test_ordinary_work_is_not_stopped(name: str, check: Callable[[str], RailVerdict]):
    texts = read_examples(name)
    verdicts = [(text, check(text)) for text in texts]
    assert [(text, verdict.rule) for text, verdict in verdicts if verdict.verdict is not Verdict.ALLOW] == []
    assert len(texts) >= 30


@pytest.mark.parametrize(
    "name, check",
    [
        ("disguised_commands", check_command),
        ("vendor_commands", check_command),
        ("disguises", check_command),
        ("orders_to_destroy", check_prompt),
    ],
)
def test_destructive_work_is_stopped(name: str, check: Callable[[str], RailVerdict]):
    assert [text for text in read_examples(name) if check(text).verdict is Verdict.ALLOW] == []


@pytest.mark.parametrize(
    "prompt, name",
    TABLE["harmless_prompts"],
)
def test_ordinary_commands_and_talk_about_destructive_ones_are_not_stopped_in_a_prompt(prompt: str, name: str):
    commands = read_quotable_commands(name)
    assert [text for text in commands if check_prompt(prompt.format(text)).verdict is not Verdict.ALLOW] == []


@pytest.mark.parametrize(
    "name, min_stopped, count",
    TABLE["creative"],
)
def test_creative_commands_are_stopped(name: str, min_stopped: int, count: int):
    """The rules were tuned on the first list alone; the others were set aside. The least number that is stopped is what
    the rules reached, so that no list gets worse."""
    texts = read_examples(name)
    assert len(texts) == count
    assert sum(check_command(text).verdict is not Verdict.ALLOW for text in texts) >= min_stopped
