"""The tools of agents in a session (SPEC 3.8): read, write, edit, exec, web_search, web_fetch, and no others.

`toolbelt` carries out a call that `tool_gate` let through. `folder_jail` confines it to the files of one folder, and
`web` reads pages.
"""
