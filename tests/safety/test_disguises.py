"""The content filter (SPEC 3.5) stops a command also behind look-alike letters, in any wrapping, and encoded."""

import base64
import re
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model import Verdict
from engine.safety.content import rulebook
from engine.safety.content.commands import check_command
from tests.safety.examples import read_examples

SIMPLE = re.compile(r"[\w./:=@-]+(?: [\w./:=@-]+)*")
"""A command of plain words: nothing in it is quoted already."""

STOPPED = sorted({text for rule in rulebook.load_command_rules() for text in rule.stops if SIMPLE.fullmatch(text)})
ORDINARY = sorted({text for text in read_examples("ordinary_commands") if SIMPLE.fullmatch(text)})

LOOKALIKES = str.maketrans("aeopcxsi", "\u0430\u0435\u043e\u0440\u0441\u0445\u0455\u0456")
WRAPPINGS = read_examples("wrappings")


def judge(text: str) -> Verdict:
    return check_command(text).verdict


@pytest.mark.long
@settings(max_examples=200)
@given(st.data(), st.sampled_from(STOPPED))
def test_look_alikes_and_invisible_characters_change_nothing(data: st.DataObject, command: str):
    text = "".join(letter.translate(LOOKALIKES) if data.draw(st.booleans()) else letter for letter in command)
    at = data.draw(st.integers(0, len(command)))
    invisible = data.draw(st.sampled_from(["", "\u200b", "\u2060", "\ufeff"]))
    assert judge(text[:at] + invisible + text[at:]) is judge(command)


@settings(max_examples=400)
@given(st.sampled_from(STOPPED), st.sampled_from(WRAPPINGS))
def test_a_stopped_command_is_stopped_in_any_wrapping(command: str, wrapping: str):
    assert judge(wrapping.format(command)) is not Verdict.ALLOW


@settings(max_examples=300)
@given(st.sampled_from(ORDINARY), st.sampled_from(WRAPPINGS))
def test_an_ordinary_command_passes_in_any_wrapping(command: str, wrapping: str):
    assert judge(wrapping.format(command)) is Verdict.ALLOW


ENCODINGS: Mapping[str, Callable[[str], str]] = {
    "base64": lambda command: f"echo {base64.b64encode(command.encode()).decode()} | base64 -d | sh",
    "hexadecimal": lambda command: f"echo {command.encode().hex()} | xxd -r -p | bash",
    "reversed": lambda command: f"echo '{command[::-1]}' | rev | sh",
    "octal": lambda command: f"printf '{''.join(f'{chr(92)}{ord(letter):03o}' for letter in command)}' | sh",
}


@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS)
@settings(max_examples=150)
@given(st.sampled_from(STOPPED))
def test_encoding_hides_nothing(encode: Callable[[str], str], command: str):
    assert judge(encode(command)) is not Verdict.ALLOW
