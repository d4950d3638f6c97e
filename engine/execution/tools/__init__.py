"""What agents can do in a session (SPEC 3.8): read, write, edit, exec, web_search, web_fetch, and nothing else."""
