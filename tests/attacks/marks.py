"""Marks by which a test finds what an attack read, and the processes that it started."""

import os
import secrets
import time

import psutil


def make_canary() -> str:
    """A word that appears nowhere else."""
    return f"canary-{secrets.token_hex(8)}"


def find_sleepers(seconds: str) -> list[int]:
    """The processes of the machine that were started with this argument."""
    processes = psutil.process_iter(["cmdline"])
    return [process.pid for process in processes if seconds in (process.info["cmdline"] or ())[1:2]]


def make_unique_seconds() -> str:
    """An argument for `sleep` by which `find_sleepers` finds the processes of one test."""
    return f"4711{os.getpid()}.{time.time_ns() % 10**9}"
