"""The configuration of a pod, as its init container writes it and as the server reads it."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

from manifests import ROOT, objects, pod


def template() -> dict[str, Any]:
    """The configuration before names and addresses are filled in."""
    return tomllib.loads(objects()["config"]["data"]["isolet.toml"])


def written(machine: str, address: str, folder: Path) -> Path:
    """Runs the command of the init container. Returns the file that it wrote."""
    init = pod()["initContainers"][0]
    mounts = {mount["name"]: mount["mountPath"] for mount in init["volumeMounts"]}
    command = [*init["command"], *init["args"]]
    for name, path in mounts.items():
        (folder / name).mkdir(exist_ok=True)
        command = [part.replace(f"{path}/", f"{folder / name}/") for part in command]
    for name, text in objects()["config"]["data"].items():
        (folder / "template" / name).write_text(text)
    environment = {"PATH": os.environ["PATH"], "NODE_NAME": machine, "POD_IP": address}
    subprocess.run(command, env=environment, check=True, timeout=10)
    return folder / "config" / "isolet.toml"


def effective(file: Path) -> dict[str, Any]:
    """The settings in force, as the server prints them. Fails if it refuses the file."""
    program = Path(os.environ.get("ISOLET_PROGRAMS", ROOT / "target/programs")) / "isolet"
    environment = {"PATH": os.environ["PATH"], "ISOLET_CONFIG": str(file)}
    command = [program, "serve", "--print-config"]
    printed = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=30)
    assert printed.returncode == 0, printed.stderr
    return tomllib.loads(printed.stdout)
