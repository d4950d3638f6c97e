"""Tests of every part of the five seeds, through the whole engine, by the effect that a user would notice.

There is one test for each part; `table.py` says which files belong to which seed. The name of a test is the name of the
part, the first line of its docstring the numbers of `docs/SPEC.md` and the effect; the table there is made of both
(`python -m tests.seeds.table`). Home, database, index, git and processes are real; a model is played by a server on
loopback, and time by the fake clock.
"""
