"""Any edit of a card changes its digest (SPEC 3.1)."""

import dataclasses

from engine.model import Assignment


def test_any_edit_changes_the_digest():
    assignment = Assignment("run tests", "koji-core", "/shop", "flow", "run_tests", {"paths": ["a.py"]})
    edits = [
        dataclasses.replace(assignment, prompt="run Tests"),
        dataclasses.replace(assignment, channel="research"),
        dataclasses.replace(assignment, workspace="/other"),
        dataclasses.replace(assignment, runner="acp"),
        dataclasses.replace(assignment, flow=None),
        dataclasses.replace(assignment, parameters={"paths": ["b.py"]}),
    ]
    assert len({assignment.digest, *(edit.digest for edit in edits)}) == 7
    assert dataclasses.replace(assignment, parameters={"paths": ["a.py"]}).digest == assignment.digest
