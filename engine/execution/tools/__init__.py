"""The tools of agents in a session (SPEC 3.8): read, write, edit, exec, web_search, web_fetch, and no others."""
