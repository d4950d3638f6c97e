"""Doing approved work: channels, sessions, sandboxes, runners, worktrees and the change sets they leave.

Serves SPEC 2.4 (channels), 3.7 (what runs ends within a second of a stop), 3.8 (sessions), 3.9 (work lands by
review). May import storage, config, git, home, events, clock and values; what it needs of safety, memory or tasks is
handed to it as the small protocols that its modules define.
"""
