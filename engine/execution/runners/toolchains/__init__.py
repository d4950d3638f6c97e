"""The projects of a repository and the tools that test, lint and install them, as a table of data (SPEC 3.8, 3.9).

`tools.toml` is the table, which `table` reads; `readers` read what tools print, `missing` tells what a run lacked.
`looking` finds the tools of one folder, `bound` makes their command lines, `projects` puts the folders of a repository
together: it is what sensing and flows ask. Nothing here starts a program of a repository. May import engine.git,
engine.plain_files, engine.model, the PATH of `engine.execution.sandbox.environment`, and the standard library.
"""
