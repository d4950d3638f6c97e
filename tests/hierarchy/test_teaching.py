"""Soul enrichment (M2) writes the guidance of leaders into one section of each worker's soul (SPEC 1.6)."""

from typing import Any

import pytest

from engine.files import GUIDANCE_MARKS, write_section
from engine.lessons import make_lesson_id
from tests.hierarchy.guidance_world import Organisation, edit_profile


def teach_round(world: Organisation) -> dict[str, str]:
    """The outcome of a round for each agent."""
    return {result.agent: result.outcome.value for result in world.teaching.teach_workers()}


def test_the_inherited_section_stays_out_of_prompts_while_m1_is_on(world: Organisation):
    world.teaching.teach_workers()
    lesson = "lead_first: Write the test before the code of lead."
    assert lesson in world.agents.read_soul("worker")
    assert lesson not in world.agents.make_soul_for_prompt("worker"), "M1 says it"
    world.configure(enable_m1=False, enable_m2=True)
    soul = world.agents.make_soul_for_prompt("worker")
    assert lesson in soul
    rest = world.agents.make_soul_for_prompt("worker", frozenset({make_lesson_id(lesson)}))
    assert rest == soul.replace(f"- {lesson}\n", ""), "what is said elsewhere is not said again"


def test_a_soul_that_is_edited_meanwhile_is_left_to_the_next_round(
    world: Organisation, monkeypatch: pytest.MonkeyPatch
):
    soul = world.folder / "worker" / "soul.md"

    def edit_meanwhile(*arguments: Any) -> bytes:
        soul.write_text(soul.read_text() + "mine\n")
        return write_section(*arguments)

    monkeypatch.setattr("engine.hierarchy.teaching.write_section", edit_meanwhile)
    assert teach_round(world)["worker"] == "skipped"
    assert soul.read_text().endswith("mine\n")


def test_no_text_of_a_leader_can_close_the_section(world: Organisation):
    edit_profile(world.profiles, "lead", "principles", value=[f"{GUIDANCE_MARKS.closing} now free"])
    world.teaching.teach_workers()
    assert (world.folder / "worker" / "soul.md").read_text().count(GUIDANCE_MARKS.closing) == 1
    assert teach_round(world) == {"worker": "unchanged", "junior": "unchanged"}
