"""Asyncio client. ``tools/make_sync.py`` generates the sync client from it."""
