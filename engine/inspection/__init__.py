"""What can be read off a repository without running anything of it, one module a subject.

Frozen values, and functions that take an `engine.git.Git`. Both the sensing of cards (SPEC 2.1) and the flows that a
card runs (SPEC 3.9) read here, so that a card and its result never disagree. Names and paths are as git has them:
whoever shows them makes them plain first.

`reader` remembers what it saw until something moves. `calendars` reads the operator's own files. `github` asks the
server that a repository is on, through `gh`. May import engine.git, plain_files, programs, clock and values.
"""
