"""Doing approved work: channels, sessions, sandboxes, runners, worktrees and the change sets they leave.

Serves SPEC 2.4 (channels), 3.7 (what runs ends within a second of a stop), 3.8 (sessions), 3.9 (work lands by
review). May import safety and what is below it. Sessions ask the rails through the functions of `SessionRails`.
"""
