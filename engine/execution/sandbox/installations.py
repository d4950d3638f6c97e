"""Programs that lie in a private place, and have to be shown there all the same."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path


def tools_in(places: Iterable[Path], program: str, path: str | None = None) -> list[Path]:
    """Installations that lie in `places` and that a command needs: that of `program` and those on the search path
    (`path`, by default PATH). Of `x/bin/tool` that is `x`; of a tool that lies in a place itself only the tool."""
    places = set(places)
    found = shutil.which(program, path=path)
    searched = (os.environ.get("PATH", "") if path is None else path).split(os.pathsep)
    wanted = [Path(folder) / "tool" for folder in searched if folder]
    if found:
        # A virtual environment may be a link, and its interpreter one that leads to another installation.
        own = Path(found)
        wanted = [own, own.parent.resolve() / own.name, own.resolve(), *wanted]
    tools = []
    for tool in dict.fromkeys(wanted):
        if not any(tool.is_relative_to(place) for place in places):
            continue
        root = tool.parent.parent if tool.parent.name in ("bin", "sbin") else tool.parent
        root = tool if root in places else root
        if root.exists() and not root.is_symlink():  # nothing can be mounted on a link
            tools.append(root)
    return tools
