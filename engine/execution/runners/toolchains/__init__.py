"""Finds the projects of a repository, and the tools that test, lint and install them (SPEC 3.8, 3.9).

The tools are data: `tools.toml` is their table, and `tool_table` reads it, with the items that a run may lack.
`project_folder` reads one folder, in which `detection` finds test runners, linters and package managers.
`project_tools` makes the command lines of tools, and reads the findings of linters. `run_results` reads the results of
tests. `python_projects` finds the environments of Python, and the tests of a changed Python file. `projects` combines
the folders of a repository; sensing and flows use it. `installing` finds the commands that install packages, and puts
packages into the tree. `lock_files` compares lock files with manifests.

Nothing here starts a program of a repository. It may import engine.git, engine.files, engine.model, `runners.flow`,
`engine.execution.sandbox.host_paths`, platformdirs and the standard library; `installing` also
`engine.execution.live_session`.
"""
