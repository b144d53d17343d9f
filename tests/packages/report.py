"""Progress of the package tests: sections, proven facts, and commands with their output."""

import subprocess
import sys
from collections.abc import Sequence

#: Time limit of one command, in seconds.
COMMAND_S_MAX = 900


def section(text: str) -> None:
    """Print a heading."""
    print(f"\n=== {text}", flush=True)


def proven(text: str) -> None:
    """Print a fact that a step has just checked."""
    print(f"  proven: {text}", flush=True)


def run(command: Sequence[str], **options: object) -> str:
    """Run a command and return its output. A command that fails ends the step, with its output."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_S_MAX,
        check=False,
        **options,
    )
    if done.returncode != 0:
        sys.stdout.write(done.stdout)
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}")
    return done.stdout


def expect(fact: bool, text: str) -> None:
    """Require a fact, and print it as proven."""
    if not fact:
        raise AssertionError(f"not so: {text}")
    proven(text)
