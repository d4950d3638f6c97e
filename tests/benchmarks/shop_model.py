"""A model that does better only if its prompt says how: a fixed policy on loopback.

It writes naive code, which breaks a rule of the shop. After the failing test it finds the remedy in half of the tasks
(a coin seeded with the task), and always when its prompt names the remedy, which only earlier sessions can have put
there.
"""

import re
from collections.abc import Sequence

from tests.benchmarks.shop_tasks import MODULE, ShopTask
from tests.support.model_server import Reply, Request, make_call

FIND_SHARE = 0.5
"""The share of tasks in which the model finds the remedy by itself after the failing test."""

HABIT = ("git status --short", "git log --oneline -3", "ls tests", "python3 -m compileall -q shop")
"""Commands that many sessions run in this order before they write."""

CHATTER = ("ls", "git diff --stat", "git branch", "cat pytest.ini", "ls shop", "wc -l shop/money.py", "head -3 README")
"""Commands that are run in no order."""


class ShopModel:
    """The policy. `harm_by_words`: by the words of a fragment, the share of tasks that following them ruins.
    `habit_share`: the share of tasks in which it runs `HABIT` before it writes; 0 for no commands. `follow_share`: how
    often it follows its prompt; `guess_share`: how often it is right at once by itself."""

    def __init__(self, tasks: Sequence[ShopTask]):
        self._tasks = {task.prompt: task for task in tasks}
        self.harm_by_words: dict[str, float] = {}
        self.habit_share = 0.0
        self.follow_share, self.guess_share = 1.0, 0.0

    def __call__(self, request: Request) -> Reply:
        task = next(task for prompt, task in self._tasks.items() if any(prompt in text for text in request.users))
        commands = self._draw_first_commands(task)
        if len(request.tool_results) < len(commands):
            return make_call("exec", command=commands[len(request.tool_results)])
        writes = sum("wrote" in text or "written" in text.lower() for text in request.tool_results)
        failures = [text for text in request.users if "tests were run on your changes" in text]
        if writes <= len(failures):
            body = self._write_body(task, request, failures)
            content = MODULE.format(rule=task.rule.name) + body
            return make_call("write", path=f"shop/{task.rule.name}.py", content=content)
        added_lines = re.findall(r"^\s{4}.*$", self._write_body(task, request, failures), re.M)
        return Reply(text=f"I added {task.function}: {' '.join(line.strip() for line in added_lines[-2:])}")

    def _draw_first_commands(self, task: ShopTask) -> list[str]:
        """The commands that the model runs before it writes."""
        if not self.habit_share:
            return []
        chatter = sorted(CHATTER, key=lambda command: task.draw(command))
        habit = HABIT if task.is_lucky("habit", self.habit_share) else ()
        return [*chatter[:3], *habit, *chatter[3:5]]

    def _write_body(self, task: ShopTask, request: Request, failures: Sequence[str]) -> str:
        """The function that the model writes: the remedy or naive code."""
        prompt = request.system + "\n".join(request.users)
        is_told = task.rule.token in prompt.replace(task.rule.test, "")
        follows = is_told and task.is_lucky("follows", self.follow_share)
        guesses = task.is_lucky("guesses", self.guess_share)
        is_ruined = any(words in prompt and task.is_lucky(words, share) for words, share in self.harm_by_words.items())
        finds_remedy = bool(failures) and task.is_lucky("finds", FIND_SHARE)
        is_right = (follows or guesses or finds_remedy) and not is_ruined
        return (task.rule.remedy if is_right else task.rule.naive).format(name=task.function)
