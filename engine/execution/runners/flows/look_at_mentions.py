"""Documentation of what your changes renamed or removed: shown, and brought up to date where a rename is evident."""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution.runners.flow import FlowResult, Job, Place
from engine.execution.runners.flows.common import Parameters, RepoPath, clean, count, listed
from engine.execution.runners.flows.look_for_leftovers import seen
from engine.plain_files import read_plain

LARGEST = 5_000_000


class LookAtMentionsParameters(Parameters):
    """None."""


class LookAtMentions:
    """Lists each line of documentation that names what is gone, with the new name where there is one."""

    name: ClassVar = "look_at_mentions"
    title: ClassVar = "Look at the documentation"
    place: ClassVar = Place.OPERATOR_TREE
    parameters: ClassVar[type[BaseModel]] = LookAtMentionsParameters

    def describe(self, parameters: LookAtMentionsParameters) -> str:
        return "Show the documentation that names what your changes renamed or removed"

    def run(self, job: Job) -> FlowResult:
        found = seen(job).mentions
        if not found:
            return FlowResult("The documentation names nothing that your changes renamed or removed")
        for one in found:
            now = f" (now {clean(one.new)})" if one.new else " (gone)"
            job.say(f"{clean(one.path)}:{one.line}  {clean(one.old)}{now}\n      {clean(one.text)}")
        renamed = [one for one in found if one.new]
        if len(renamed) < len(found):
            job.say("Reword what is gone and has no new name.")
        names = listed(dict.fromkeys(one.old for one in found), 3)
        files, verb = count(len({one.path for one in found}), "file"), "name" if len(found) > 1 else "names"
        return FlowResult(
            f"{count(len(found), 'line')} in {files} of documentation still {verb} {names}",
            sound=False,
            facts={
                "mentions": [
                    {"path": clean(one.path), "line": one.line, "old": clean(one.old), "new": clean(one.new)}
                    for one in found
                ]
            }
            | ({"next": "update_docs"} if renamed else {}),
        )


class UpdateDocsParameters(Parameters):
    """Which files."""

    paths: list[RepoPath] = Field(min_length=1, max_length=100, description="documents that contain renamed names")


class UpdateDocs:
    """Puts the new name in place of the old one on the lines that the look found."""

    name: ClassVar = "update_docs"
    title: ClassVar = "Update the documentation"
    place: ClassVar = Place.CHANGE_SET
    parameters: ClassVar[type[BaseModel]] = UpdateDocsParameters

    def describe(self, parameters: UpdateDocsParameters) -> str:
        return f"Put the new names into {listed(parameters.paths, 3)}"

    def run(self, job: Job) -> FlowResult:
        found = seen(job).mentions
        changed: dict[str, int] = {}
        for path in job.parameters.paths:
            wanted = [one for one in found if one.path == path and one.new]
            if not wanted:
                continue
            try:
                rows = read_plain(job.folder / path, LARGEST, follow=False).decode().split("\n")
            except (OSError, ValueError) as error:
                job.say(f"{clean(path)} was not changed: {clean(str(error))}")
                continue
            for one in sorted(wanted, key=lambda one: -len(one.old)):
                new = one.new.replace("\\", "\\\\")
                rows[one.line - 1] = re.sub(rf"(?<![\w-]){re.escape(one.old)}(?![\w-])", new, rows[one.line - 1])
                job.say(f"{clean(path)}:{one.line}  {clean(one.old)} → {clean(one.new)}")
            (job.folder / path).write_bytes("\n".join(rows).encode())
            changed[path] = len(wanted)
        if not changed:
            return FlowResult("Nothing to update: no document contains a name with a clear replacement")
        left = sum(not one.new for one in found)
        rest = (
            f"; {count(left, 'line')} {'names' if left == 1 else 'name'} something that is gone and must be reworded"
            if left
            else ""
        )
        words = f"{count(sum(changed.values()), 'name')} updated in {listed(changed, 3)}{rest}"
        return FlowResult(words, facts={"changed": list(changed)})
