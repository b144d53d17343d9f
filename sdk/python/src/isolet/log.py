"""Logger of the WebSocket connections that never shows an API key."""

from __future__ import annotations

import logging


class _NoKeys(logging.Filter):
    """Drops records that contain the ``Authorization`` header."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Decide whether a record may be logged."""
        return "authorization" not in record.getMessage().lower()


#: Replaces the WebSocket library's logger, which shows every header at level DEBUG.
LOGGER = logging.getLogger("isolet.websocket")
LOGGER.addFilter(_NoKeys())
