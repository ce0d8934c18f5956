"""Folders and files: written atomically by one process at a time, read back without trust, safe for every sink."""
