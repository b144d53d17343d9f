"""What the entry point of ``inspect_ai`` loads: importing it registers the provider ``isolet``."""

from .sandbox import IsoletSandboxEnvironment

__all__ = ["IsoletSandboxEnvironment"]
