"""The logs of this package's WebSockets, without keys."""

from __future__ import annotations

import logging


class _NoKeys(logging.Filter):
    """Leaves out the headers of requests: one of them is the key."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record may be logged."""
        return "authorization" not in record.getMessage().lower()


#: Given to the WebSocket library, whose own logger would show every header at level DEBUG.
LOGGER = logging.getLogger("isolet.websocket")
LOGGER.addFilter(_NoKeys())
