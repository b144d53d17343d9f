"""The client that blocks. All of it but ``io.py`` is made from ``_async``: see tools/make_sync.py."""
