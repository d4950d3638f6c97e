"""Run the tests that belong to changed files."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution.runners.flow import FlowResult, Job, Place
from engine.execution.runners.flows.causes import messages, signatures
from engine.execution.runners.flows.common import (
    ProjectParameters,
    RepoPath,
    TestId,
    clean,
    combined,
    count,
    in_project,
    in_words,
    listed,
    run_plan,
    sentence,
    toolchain_of,
    toolchains,
)
from engine.execution.runners.toolchains.bound import Toolchain

TOO_MANY = 400
"""With more targets than this the whole suite is run; a command line has its limits."""


class RunTestsParameters(ProjectParameters):
    """Which files changed, or which tests."""

    paths: list[RepoPath] = Field(default=[], description="changed source files; none = the whole suite")
    tests: list[TestId] = Field(default=[], max_length=TOO_MANY, description="tests by id, instead of changed files")


class RunTests:
    """Finds the tests of the changed files, by name, by folder and by what they import, and runs them."""

    name: ClassVar = "run_tests"
    title: ClassVar = "Run tests"
    place: ClassVar = Place.CHECK
    parameters: ClassVar[type[BaseModel]] = RunTestsParameters

    def describe(self, parameters: RunTestsParameters) -> str:
        return f"{self._what(parameters)}{in_project(parameters.project)}"

    def _what(self, parameters: RunTestsParameters) -> str:
        paths, tests = parameters.paths, parameters.tests
        if tests:
            return f"Run {listed(tests, 2) if len(tests) < 3 else count(len(tests), 'test')} again"
        if not paths:
            return "Run the whole test suite"
        if len(paths) == 1:
            return f"Run the tests of {clean(paths[0])}"
        return f"Run the tests of {count(len(paths), 'changed module')}: {listed(paths, 3)}"

    def run(self, job: Job) -> FlowResult:
        tools = toolchains(job)
        paths: list[str] = job.parameters.paths
        plan, mapped = self._named(tools, job.parameters.tests) or self._plan(job, tools, paths)
        texts: dict[str, str] = {}
        done = run_plan(job, plan, texts)
        alike = [signatures(texts, check.failing, tool.folder) for tool, check in done]
        said = [messages(texts, signed, tool.folder) for signed, (tool, _) in zip(alike, done, strict=True)]
        check = combined([check for _, check in done])
        full = all(not tests for _, tests in plan)
        scope = (" (the whole suite)" if full else " (only the tests of this change)") if paths else ""
        return FlowResult(
            summary=sentence(f"{in_words(check)}{in_project(job.parameters.project)}{scope}"),
            check=check,
            facts={
                "tests_by_path": mapped,
                "without_tests": [path for path in paths if not mapped.get(path)],
                "signatures": {test: signature for one in alike for test, signature in one.items()},
                "messages": {signature: message for one in said for signature, message in one.items()},
            },
            full=full and len(done) == len(tools),
        )

    def _named(
        self, tools: list[Toolchain], tests: list[str]
    ) -> tuple[list[tuple[Toolchain, list[str]]], dict[str, list[str]]] | None:
        """The plan for tests that were named; the whole suite with a tool that cannot run them alone."""
        if not tests:
            return None
        tool = toolchain_of(tools, tests)
        return [(tool, tests if tool.exact else [])], {}

    def _plan(
        self, job: Job, tools: list[Toolchain], paths: list[str]
    ) -> tuple[list[tuple[Toolchain, list[str]]], dict[str, list[str]]]:
        """What each tool is to run, [] meaning everything, and which tests belong to which path."""
        plan: list[tuple[Toolchain, list[str]]] = []
        mapped: dict[str, list[str]] = {}
        top = f"{job.parameters.project}/" if job.parameters.project else ""
        inside = [path.removeprefix(top) for path in paths if path.startswith(top)]
        for tool in tools:
            mine = [path for path in inside if tool.takes(path)]
            if not mine:
                continue
            found = tool.tests_for(mine)
            mapped |= {f"{top}{path}": names for path, names in found.items()}
            tests = sorted({test for names in found.values() for test in names})
            for path, names in found.items():
                job.say(f"{clean(path)} → {listed(names, 4) if names else 'no tests of its own'}")
            if not tests or len(tests) > TOO_MANY:
                job.say(f"Running the whole suite with {tool.title}")
                tests = []
            plan.append((tool, tests))
        if not plan:
            if paths:
                job.say(f"No tests found for {listed(paths, 4)}: running the whole suite")
            plan = [(tool, []) for tool in tools]
        return plan, mapped
