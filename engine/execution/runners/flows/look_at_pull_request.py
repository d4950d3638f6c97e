"""What is known here of a pull request that waits for the operator. Nothing is asked of the server."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution.runners.flow import FlowResult, Job, Place
from engine.execution.runners.flows.common import Line, Parameters, clean, count, home_git, main_branch

SHOWN = 30


class LookAtPullRequestParameters(Parameters):
    """What the server said of it."""

    number: int = Field(ge=1, description="its number")
    title: Line = Field(default="", description="its title")
    url: Line = Field(default="", description="where it is")
    branch: Line = Field(default="", description="the branch to be merged")
    waits: Line = Field(default="", description="who is waiting for what, and since when")
    mine: bool = Field(default=False, description="whether it is your own")


class LookAtPullRequest:
    """Says who waits for what, what its branch changes where it is here, and the commands that show the rest."""

    name: ClassVar = "look_at_pull_request"
    title: ClassVar = "Look at a pull request"
    place: ClassVar = Place.OPERATOR_TREE
    parameters: ClassVar[type[BaseModel]] = LookAtPullRequestParameters

    def describe(self, parameters: LookAtPullRequestParameters) -> str:
        return f"Look at pull request #{parameters.number} “{clean(parameters.title)}”"

    def run(self, job: Job) -> FlowResult:
        asked: LookAtPullRequestParameters = job.parameters
        for line in (f"#{asked.number} {clean(asked.title)}", clean(asked.url), clean(asked.waits)):
            if line.strip():
                job.say(line)
        changed, ref = self._changes(job, asked.branch)
        number = asked.number
        job.say(f"Next: gh pr view {number} --comments")
        job.say(f"      gh pr diff {number}")
        if not asked.mine or not ref:
            job.say(f"      gh pr checkout {number}")
        here = f"; {changed}" if changed else "; its branch is not here"
        words = clean(asked.waits).rstrip(".") or f"Pull request #{number}"
        return FlowResult(f"{words}{here}", facts={"number": number, "ref": ref})

    def _changes(self, job: Job, branch: str) -> tuple[str, str]:
        """What the branch changes against the main one, in words, and the ref it was read from; "" where it is not
        here."""
        git, base = home_git(job), main_branch(job)
        refs = git.text("for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes").splitlines()
        wanted = [f"refs/heads/{branch}", *(name for name in refs if name.split("/", 3)[3:] == [branch])]
        ref = next((name for name in wanted if branch and name in refs), "")
        if not ref or base is None or ref == f"refs/heads/{base}":
            return "", ref
        done = git.run("merge-base", f"refs/heads/{base}", ref, allowed=(0, 1))
        start = done.stdout.decode().strip()
        if not start:
            return "", ref
        commits = git.text(
            "log", "--no-show-signature", "--format=%h %an: %s", f"-n{SHOWN}", f"{start}..{ref}"
        ).splitlines()
        files = git.text("diff", "--stat", "--no-color", start, ref).splitlines()
        for line in [*commits, *files[:SHOWN]]:
            job.say(clean(line))
        number = int(git.text("rev-list", "--count", f"{start}..{ref}"))
        return f"{count(number, 'commit')}, {count(max(len(files) - 1, 0), 'file')} changed against {clean(base)}", ref
