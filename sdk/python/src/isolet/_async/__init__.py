"""The client for asyncio. The package ``_sync`` is made from this one: see tools/make_sync.py."""
