"""The log file of the engine and its libraries, which rotates and never goes to the terminal."""

from __future__ import annotations

import logging
from logging.handlers import RotatingFileHandler

from engine.home import Home

LOG_BYTES = 2_000_000
LOG_FILES = 3
"""The size at which the log rotates, and how many old files are kept."""


class _Log(RotatingFileHandler):
    """A log handler for a disk that may be full: what it cannot write is lost, and never reaches the terminal."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (the name is logging's)
        pass


def set_up_logging(home: Home) -> None:
    """Write the log of the engine and its libraries to `logs/clawpy.log`."""
    file = home.logs / "clawpy.log"
    for name in ("engine", "apscheduler", "uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        if any(getattr(handler, "baseFilename", "") == str(file) for handler in logger.handlers):
            continue
        for handler in [old for old in logger.handlers if isinstance(old, RotatingFileHandler)]:
            logger.removeHandler(handler)
            handler.close()
        handler = _Log(file, maxBytes=LOG_BYTES, backupCount=LOG_FILES, delay=True, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
