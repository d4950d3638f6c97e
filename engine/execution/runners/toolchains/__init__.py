"""The projects of a repository and the tools that test, lint and install them, as a table of data (SPEC 3.8, 3.9).

`tools.toml` is the table and `tool_table` reads it. `detection` finds the tools of one folder, `project_tools` makes
their command lines, `output_readers` reads what they print, and `missing_items` names what a run lacked.
`python_projects` knows the environments of Python, and `related_tests` the tests of a changed Python file. `projects`
combines the folders of a repository: sensing and flows ask it. `installing` finds how packages get into the tree, and
lends them to a worktree. `lock_files` compares lock files with manifests. Nothing here starts a program of a
repository. May import engine.git, engine.files, engine.model, `runners.flow`, `engine.execution.sandbox.host_paths`,
platformdirs and the standard library; `installing` also `engine.execution.live_session`.
"""
