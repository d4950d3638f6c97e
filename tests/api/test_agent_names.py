"""SPEC 10.4: an agent goes by a name of its own, never by one that carries authority, however that is spelt."""

from __future__ import annotations

import pytest

from engine.api.operations.memory import RESERVED_NAMES, agent_name
from engine.model import Refusal

SPELLINGS = ("{}", " {} ", "{}\n", "{}1", "{}.", "@{}")
DISGUISES = [
    "OPERATOR", "Operator", "oper\u0430tor", "\u043ewner", "ｏｐｅｒａｔｏｒ", "op\u200berator", "o-p-e-r-a-t-o-r",
    "0perator",    "óperator", "operat0r", "oper@tor", "a1fred", "Alfred 2", "e n g i n e", "ENGINE\u202e",
    "𝐨𝐰𝐧𝐞𝐫", "own\u0435r",
    "r00t",    "u\u0455er", "ⓐⓟⓘ", "api()", "[operator]", "operator\u0301", "clawpy-console", "the operator",
]  # fmt: skip


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_name_of_authority_is_refused(name: str, spelling: str) -> None:
    with pytest.raises(Refusal) as refused:
        agent_name(spelling.format(name))
    assert refused.value.code == "not_its_name"


@pytest.mark.parametrize("name", DISGUISES)
def test_a_disguised_name_is_refused(name: str) -> None:
    with pytest.raises(Refusal) as refused:
        agent_name(name)
    assert refused.value.code == "not_its_name"


@pytest.mark.parametrize(
    "name", ["reviewer", "claude-code", "Codex", "gemini 2.5", "an agent", "qa-bot-3", "Ökonom", "代理", "apiary"]
)
def test_a_name_of_its_own_is_kept(name: str) -> None:
    assert agent_name(name) == name
