"""Settings of the sandboxes of a task."""

from __future__ import annotations

from pathlib import Path

import yaml
from inspect_ai.util import SandboxEnvironmentConfigType
from pydantic import BaseModel, ConfigDict

#: Name of the file that Inspect finds beside a task.
CONFIG_FILE = "isolet.yaml"


class IsoletSandboxConfig(BaseModel):
    """Settings of a sample's sandbox. What is not set is as the server configures it.

    In a task: ``SandboxEnvironmentSpec("isolet", IsoletSandboxConfig(image="python:3.12"))``; in a file:
    the same names as keys of ``isolet.yaml``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: str | None = None
    """``host``, or the name of an image that the server has or may pull."""
    user: str | None = None
    """User name or numeric id that runs commands and accesses files; the image's user by default."""
    memory_mib: int | None = None
    """Memory limit, in MiB."""
    cpu_millis: int | None = None
    """CPU limit, in thousandths of a core."""
    pids: int | None = None
    """Limit on processes and threads."""
    disk_mib: int | None = None
    """Size of the disk, in MiB."""
    network: str | None = None
    """``none`` (loopback only) or ``open``."""
    network_profile: str | None = None
    """Name of a network profile of the server, instead of ``network``."""
    snapshot: str | None = None
    """Id or name of a snapshot to start from."""
    env: tuple[tuple[str, str], ...] = ()
    """Environment variables of all commands, as pairs of name and value; a mapping in ``isolet.yaml``."""
    ttl: int | str = "24h"
    """Lifetime, in seconds or as text: the server deletes the sandbox then, even if the evaluation's
    machine is gone."""


def resolve_config(config: SandboxEnvironmentConfigType | None) -> IsoletSandboxConfig:
    """Read what a task passes: nothing, settings, or the path of a YAML file.

    Raises:
        TypeError: settings of another provider.
        ValueError: the file is not a mapping, or contains unknown or invalid settings.
        OSError: the file cannot be read.
    """
    if config is None:
        return IsoletSandboxConfig()
    if isinstance(config, IsoletSandboxConfig):
        return config
    if not isinstance(config, str):
        raise TypeError(
            f"the sandbox provider isolet cannot use {type(config).__name__}: "
            f"pass IsoletSandboxConfig, or the path of a file like {CONFIG_FILE}"
        )
    settings = yaml.safe_load(Path(config).read_text(encoding="utf-8")) or {}
    if not isinstance(settings, dict):
        raise ValueError(f"{config} must contain a mapping of settings")
    env = settings.get("env")
    if isinstance(env, dict):
        settings["env"] = tuple((str(name), str(value)) for name, value in env.items())
    return IsoletSandboxConfig.model_validate(settings)
