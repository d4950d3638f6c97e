"""Pieces used by more than one screen. They draw values; they ask nobody anything."""
