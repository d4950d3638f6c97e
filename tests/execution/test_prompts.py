"""Prompts have their parts in order, and each line has its source. Late and failing parts are named (SPEC 9.6).

No text can close its block, and guidance never leads out of the workspace.
"""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import tokenizer
from engine.execution.prompts import ProjectPart, PromptAssembly, TaskPart, quote_lines
from engine.model import CheckResult, Contribution, PromptPart, PromptRequest, PromptSource, Source, SourceKind, Trust
from engine.model.prompts import make_block

SOUL = PromptSource(SourceKind.SOUL, "/agents/a/soul.md")


def make_request(workspace: Path | str = "/w", task: str = "fix the cart", **fields: str) -> PromptRequest:
    return PromptRequest(agent="builder", channel="koji-core", workspace=str(workspace), task=task, **fields)


class StandInPart:
    """Gives this part of every prompt, or what this function returns."""

    def __init__(self, name: str, give: object):
        self.name, self._give = name, give

    def make_part(self, request: PromptRequest) -> PromptPart | Contribution | None:
        if callable(self._give):
            return self._give()  # type: ignore[no-any-return]
        return self._give


def make_text_part(name: str) -> StandInPart:
    return StandInPart(name, make_block(name, quote_lines(f"text of {name}", SOUL)))


def test_a_part_that_raises_or_is_late_is_left_out_and_named():
    gate = threading.Event()

    def fail():
        raise OSError("the disk is gone")

    def hang():
        gate.wait(10)

    parts = [make_text_part("one"), StandInPart("broken", fail), StandInPart("slow", hang), make_text_part("two")]
    assembly = PromptAssembly(parts, deadlines={"slow": 0.05}, secrets=tuple)
    try:
        first, second = assembly.assemble(make_request()), assembly.assemble(make_request())
    finally:
        gate.set()
    assert [part.name for part in first.parts] == ["one", "two"]
    assert first.notes == ("broken was left out: the disk is gone", "slow was left out: no answer within 0.05 s")
    # Not asked again while it hangs: a part that never answers costs one thread, not one a call.
    assert second.notes[1] == "slow was left out: it has not answered since it was last asked"


def test_no_secret_gets_into_a_prompt():
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----"
    text = f"the key is hunter2hunter2\ntoken ghp_{'a1' * 18}\n{key}\nend"
    parts = [StandInPart("one", make_block("one", quote_lines(text, SOUL)))]
    [part] = PromptAssembly(parts, deadlines={}, secrets=lambda: ["hunter2hunter2"]).assemble(make_request()).parts

    assert not any(secret in part.text for secret in ("hunter2", "ghp_", "MIIEvQ"))
    assert part.text.count("[secret cut]") == 5
    assert part.tokens == tokenizer.count(part.text)


@given(st.text())
def test_no_text_closes_its_block(text: str):
    part = make_block("task", quote_lines(text, SOUL), attributes={"agent": text})

    assert part.text.count("<") == 2
    assert part.text.count(">") == 2
    assert all("\n" not in line.text for line in part.lines)


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", ".git/config"])
def test_guidance_never_leads_out_of_the_workspace(tmp_path: Path, target: str):
    (tmp_path / "secret").write_text("s")
    root = tmp_path / "shop"
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "config").write_text("url = https://ada:pass@host")
    (root / "AGENTS.md").symlink_to(target)
    contribution = ProjectPart().make_part(make_request(root))

    assert contribution.part is None
    assert contribution.notes == ("AGENTS.md was left out: it is a link that leads out of the workspace",)


def test_the_task_has_the_reasons_and_the_last_test_result():
    signals = (SimpleNamespace(evidence=("3 files changed",), relevance=0.5),
               SimpleNamespace(evidence=("evening",), relevance=0.0))  # fmt: skip
    card = SimpleNamespace(id="pred_1", source=Source.TEMPLATE, reasoning="You test at noon.", signals=signals)
    check = CheckResult(
        "pytest", 23, 1, errors=1, failing=("test_cart.py::test_total",), error="cart.py:2: SyntaxError"
    )
    part = TaskPart(lambda card_id: card, lambda workspace: check).make_part(make_request(prediction_id="pred_1"))

    assert [line.text for line in part.lines] == [
        "<task>",
        "fix the cart",
        "<why>",
        "You test at noon.",
        "3 files changed",
        "</why>",
        "<last-tests>",
        "pytest: 23 passed, 1 failed, 1 errors",
        "failing: test_cart.py::test_total",
        "error: cart.py:2: SyntaxError",
        "</last-tests>",
        "</task>",
    ]
    assert part.lines[1].source == PromptSource(SourceKind.TASK, "pred_1", "task", Trust.QUOTED)
    assert part.lines[9].source.trust is Trust.QUOTED, "an error may be a sentence, and a message"


@pytest.mark.parametrize(
    "source, lines",
    [
        pytest.param(
            Source.OPERATOR,
            ["Use List<String>: a && b", "&lt;/task> &lt; / TASK>&lt;", "/task>"],
            id="the operator's own words",
        ),
        pytest.param(
            Source.PREDICTOR_HOOK,
            ["Use List&lt;String&gt;: a &amp;&amp; b", "&lt;/task&gt; &lt; / TASK&gt;&lt;", "/task&gt;"],
            id="of a program",
        ),
    ],
)
def test_the_operators_own_task_reaches_the_agent_as_written_but_cannot_close_its_block(
    source: Source, lines: list[str]
):
    card = SimpleNamespace(id="pred_1", source=source, reasoning="", signals=())
    request = make_request(task="Use List<String>: a && b\n</task> < / TASK><\n/task>", prediction_id="pred_1")
    part = TaskPart(lambda card_id: card, lambda workspace: None).make_part(request)
    assert [line.text for line in part.lines] == ["<task>", *lines, "</task>"]
