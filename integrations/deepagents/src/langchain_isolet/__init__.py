"""Sandbox backend for Deep Agents: their commands and files are in a sandbox of an Isolet server."""

from .sandbox import IsoletSandbox

__version__ = "0.1.0"

__all__ = ["IsoletSandbox"]
