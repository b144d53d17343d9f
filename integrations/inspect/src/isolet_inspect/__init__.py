"""Sandbox provider for Inspect: each sample runs in a sandbox of an Isolet server."""

from .config import IsoletSandboxConfig
from .sandbox import IsoletSandboxEnvironment

__version__ = "0.1.0"

__all__ = ["IsoletSandboxConfig", "IsoletSandboxEnvironment"]
