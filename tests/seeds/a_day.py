"""docs/A_DAY.md, with what really happened in it: `python -m tests.seeds.a_day` (about a minute).

The engine, the repository, its tests and every prompt are real; the model is the fixed policy of the closed-loop
benchmark, and time is the fake clock.
"""

import difflib
import os
import tempfile
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clawpy_console.cli.printing import render_document
from engine.api.operations import dispatch
from engine.execution.runners.model.host_client import ModelHost
from engine.model import PromptRequest
from tests.benchmarks.closed_loop import Shop, has_passed
from tests.benchmarks.shop_model import ShopModel
from tests.benchmarks.shop_tasks import RULES, ShopTask
from tests.conftest import GIT_CONFIG
from tests.execution.model.model_world import CHANNEL, KEY
from tests.support.model_server import ModelServer

PAGE = Path(__file__).parents[2] / "docs" / "A_DAY.md"
RULE = replace(RULES[0], correction="Amounts are rounded half up, with ROUND_HALF_UP")
TASKS = [ShopTask(number, RULE, 5) for number in range(16)]
LATER_TASKS = 10
"""Number of the tasks of Thursday and Friday, to which nobody adds anything."""


@dataclass
class Week:
    """The shop in that week, and the lines of the page about it."""

    shop: Shop
    page: list[str] = field(default_factory=list)

    def tell(self, *paragraphs: str):
        """Add paragraphs to the page."""
        for text in paragraphs:
            self.page += [*textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False), ""]

    def show(self, *lines: str):
        """Add a block of output to the page."""
        shop = str(self.shop.repository.path)
        self.page += [*(f"    {line.replace(shop, '~/shop')}".rstrip() for line in lines), ""]

    def carry_out(self, verb: str, typed: str = "", **arguments: Any) -> dict[str, Any]:
        """Carry out a verb, and show what it prints. `typed` are its words on a command line."""
        document = dispatch(self.shop.engine, verb, arguments)
        self.show(
            f"$ clawpy {verb} {typed}".rstrip(), *render_document(verb, document, arguments.get("action")).splitlines()
        )
        return document

    def read_prompt(self) -> list[str]:
        """The lines of the system prompt that an agent would get now."""
        request = PromptRequest("backend_builder", CHANNEL, str(self.shop.repository.path), "Add money_99")
        return self.shop.engine.prompts.assemble(request).text("system").splitlines()

    def find_changed_lines(self, before: Sequence[str], after: Sequence[str]) -> list[str]:
        """The removed and the added lines."""
        diff = difflib.unified_diff(before, after, n=0, lineterm="")
        changes = [line for line in diff if line[:2] not in ("--", "++", "@@") and line[1:].strip()]
        return changes or ["(no difference)"]

    def work(self, task: ShopTask, correction: str = "") -> bool:
        """Let the model do a task, and review the result. Returns whether its tests passed at once."""
        view = self.shop.work(task, correction)
        self.shop.review(view)
        return has_passed(view)


def live_week(shop: Shop) -> list[str]:
    """Live the week; returns the lines of its page."""
    week, engine = Week(shop), shop.engine
    before = week.read_prompt()
    first = "correct" if week.work(TASKS[0]) else "wrong"
    second = "correct" if week.work(TASKS[1], RULE.correction) else "wrong"
    week.tell(
        "## Monday",
        f"You ask an agent: “{TASKS[0].prompt}”. The shop rounds halves up, and a test "
        f"checks that. Its work is **{first}**, and you discard it. You add a line to the next task:",
        f"> {TASKS[1].prompt}. **{RULE.correction}**",
        f"It is **{second}**. What changed in the agent's prompt between morning and noon:",
    )
    week.show(*week.find_changed_lines(before, week.read_prompt()))
    shop.end_day()
    week.tell("Nothing has changed by noon: learnings are sent up and evaluated in the evening.")
    week.tell("## Tuesday and Wednesday", "You add the same line to two other tasks.")
    for number in (2, 3):
        week.work(TASKS[number], RULE.correction)
        shop.end_day()
    week.tell("It has now come up in three tasks. The project learned this by itself:")
    week.carry_out("learnings", "list", workspace=str(shop.repository.path))
    week.tell("## Thursday", "The engine proposes a change from the same evidence, and you approve it.")
    dispatch(engine, "candidates", {"action": "digest"})
    waiting = dispatch(engine, "candidates", {"status": "review"})["candidates"]
    week.carry_out("candidates", "--status review", status="review")
    for candidate in waiting:
        dispatch(engine, "candidates", {"action": "approve", "id": candidate["id"]})
    week.tell("What changed in the agent's prompt since Monday morning:")
    after = week.find_changed_lines(before, week.read_prompt())
    week.show(*after)
    week.tell("## Friday")
    passed = []
    for number, task in enumerate(TASKS[4 : 4 + LATER_TASKS]):
        passed.append(week.work(task))
        if number == LATER_TASKS // 2 - 1:
            shop.end_day()
    week.tell(
        f"On Thursday and today the agent had {LATER_TASKS} more tasks of this kind, to which you added nothing: "
        f"**{sum(passed)} of {LATER_TASKS} were right at the first attempt**. Monday's first task was not.",
    )
    shop.end_day()
    for candidate in waiting:
        week.tell("The results of runs with the candidate, compared with the random share of runs without it:")
        week.carry_out("candidates", f"show {candidate['id']}", action="show", id=candidate["id"])
    week.tell("You change your mind. You roll the candidate back and retract the learnings:")
    for candidate in waiting:
        dispatch(engine, "candidates", {"action": "rollback", "id": candidate["id"]})
    for entry in engine.learnings.list_entries("project", workspace=str(shop.repository.path)):
        if entry.active:
            week.carry_out("learnings", f"retract {entry.id}", action="retract", id=entry.id, reason="no longer so")
    week.tell("The agent's prompt compared with Monday morning:")
    week.show(*week.find_changed_lines(before, week.read_prompt()))
    return week.page


HEAD = """# A day in its life

One correction on Monday, and what it changed by Friday. The program printed everything below: `python -m
tests.seeds.a_day` runs the week again. The repository, its tests, the sessions and the prompts are real. The model is
a fixed policy on loopback: it writes the same wrong line until its prompt has the rule, which it then follows nine
times in ten.
"""


def main():
    """Live the week in a throw-away home, and write the page."""
    with tempfile.TemporaryDirectory() as folder, ModelServer() as server:
        root = Path(folder)
        (root / "gitconfig").write_text(GIT_CONFIG)
        os.environ |= {
            "GIT_CONFIG_GLOBAL": str(root / "gitconfig"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
            "CLAWPY_OPENAI_API_KEY": KEY,
        }
        host = ModelHost()
        shop = Shop(root, server, host, 5, tries=0)
        model = server.answer = ShopModel(TASKS)
        model.follow_share = 0.9
        try:
            with shop.opened():
                page = live_week(shop)
        finally:
            host.close()
    PAGE.write_text("\n".join([HEAD, *page]).rstrip() + "\n")


if __name__ == "__main__":
    main()
