"""A model that does better only if its prompt says how: a fixed policy on loopback.

It writes naive code, which breaks a rule of the shop, unless its prompt names the remedy, which only the operator or
earlier sessions can have put there.
"""

import re
from collections.abc import Sequence

from tests.benchmarks.shop_tasks import MODULE, ShopTask
from tests.support.model_server import Reply, Request, make_call

FOLLOW_SHARE, GUESS_SHARE = 0.9, 0.2
"""How often the model follows its prompt, and how often it is right by itself."""


class ShopModel:
    """The policy."""

    def __init__(self, tasks: Sequence[ShopTask]):
        self._tasks = {task.prompt: task for task in tasks}

    def __call__(self, request: Request) -> Reply:
        task = next(task for prompt, task in self._tasks.items() if any(prompt in text for text in request.users))
        body = self._write_body(task, request)
        if not any("wrote" in text or "written" in text.lower() for text in request.tool_results):
            content = MODULE.format(rule=task.rule.name) + body
            return make_call("write", path=f"shop/{task.rule.name}.py", content=content)
        added_lines = re.findall(r"^\s{4}.*$", body, re.M)
        return Reply(text=f"I added {task.function}: {' '.join(line.strip() for line in added_lines[-2:])}")

    def _write_body(self, task: ShopTask, request: Request) -> str:
        """The function that the model writes: the remedy or naive code."""
        prompt = request.system + "\n".join(request.users)
        is_told = task.rule.token in prompt.replace(task.rule.test, "")
        is_right = (is_told and task.is_lucky("follows", FOLLOW_SHARE)) or task.is_lucky("guesses", GUESS_SHARE)
        return (task.rule.remedy if is_right else task.rule.naive).format(name=task.function)
