"""The projects of a repository and the tools that test, lint and install them, as a table of data (SPEC 3.8, 3.9).

`tools.toml` is the table and `tool_table` reads it. `detection` and `package_managers` find the tools of one folder
(`project_folder`), `project_tools` makes their command lines, `output_readers` reads what they print, `missing_tools`
names what a run lacked, and `projects` combines the folders of a repository: it is what sensing and flows ask.
`installing` finds how packages get into the tree, `linked_packages` lends them to a worktree. Nothing here starts a
program of a repository. May import engine.git, engine.files, engine.model, `runners.flow`, the PATH of
`engine.execution.sandbox.host_paths`, and the standard library.
"""
