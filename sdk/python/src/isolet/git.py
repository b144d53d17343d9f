"""Cloning with the git that is installed in the sandbox: the command, and parsing its output."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from .errors import GitError, UsageError
from .results import ExecResult
from .values import AnyPath, path_bytes

# $1 is the target directory, the rest are git's arguments. The caller's values are passed only as
# arguments, never spliced into the script.
_CLONE = r"""dir=$1; shift
git clone --quiet "$@" || exit
cd -- "$dir" && pwd && { git symbolic-ref --quiet --short HEAD || echo; } \
  && { git rev-parse --quiet --verify HEAD || echo; }"""

# Credential helper that reads the environment: the password appears in no argument, output or file.
_HELPER = (
    r"""!f() { test "$1" = get && printf 'username=%s\npassword=%s\n' """
    r""""$ISOLET_GIT_USERNAME" "$ISOLET_GIT_PASSWORD"; }; f"""
)

_WITH_USER = re.compile(r"(https?://)([^/?#]*)@([^@/?#]*)((?:[/?#].*)?)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class GitCheckout:
    """A cloned repository."""

    url: str  #: Without credentials.
    branch: str | None  #: Checked-out branch; ``None`` when a tag is checked out.
    commit: str | None  #: Checked-out commit; ``None`` in a repository without commits.
    target_dir: str  #: Absolute path in the sandbox.


@dataclass(frozen=True)
class GitCall:
    """Program, arguments and environment that clone a repository."""

    url: str
    argv: list[str]
    env: dict[str, str] = field(repr=False)


def clone_call(url: str, branch: str | None, target_dir: AnyPath | None, depth: int | None) -> GitCall:
    """Build the command that clones ``url``."""
    if depth is not None and depth < 1:
        raise UsageError(
            f"depth must be a number of commits, not {depth}", code="bad_depth", hint="give 1 or more"
        )
    clean_url, env = _split_credentials(url)
    target = _repository_name(clean_url) if target_dir is None else os.fsdecode(path_bytes(target_dir))
    arguments = ["--", clean_url, target]
    if depth is not None:
        arguments.insert(0, f"--depth={depth}")
    if branch is not None:
        arguments.insert(0, f"--branch={branch}")
    return GitCall(clean_url, ["bash", "-c", _CLONE, "git-checkout", target, *arguments], env)


def checkout_from_result(call: GitCall, result: ExecResult) -> GitCheckout:
    """Parse the output of a clone.

    Raises:
        GitError: the clone failed.
    """
    if result.exit_code == 0:
        target, branch, commit = result.stdout.removesuffix("\n").rsplit("\n", 2)
        return GitCheckout(call.url, branch or None, commit or None, target)
    what = f"git clone {call.url}"
    if result.timed_out:
        hint = "delete the partial clone in the target directory, or raise timeout"
        raise GitError(f"{what}: timed out", code="timeout", hint=hint)
    text = f"{what} failed (exit {result.exit_code}): {result.stderr.strip()[-2000:]}"
    if result.exit_code == 127:
        raise GitError(text, code="no_git", hint="use an image that has git")
    hint = "without network access, a sandbox can only clone from its own files"
    raise GitError(text, code="git_failed", hint=hint)


def _split_credentials(url: str) -> tuple[str, dict[str, str]]:
    """Split a URL into the URL without credentials, and an environment that passes them to git."""
    env = {"GIT_TERMINAL_PROMPT": "0"}
    match = _WITH_USER.fullmatch(url)
    if match is None:
        return url, env
    scheme, user, host, rest = match.groups()
    name, _, password = user.partition(":")
    name, password = unquote(name), unquote(password)
    if re.search(r"[\r\n\0]", name + password):
        raise UsageError("a user name or password cannot contain a line break or NUL", code="bad_url")
    # For this host only; the empty value removes other helpers.
    key = f"credential.{scheme}{host}.helper"
    env |= {
        "ISOLET_GIT_USERNAME": name,
        "ISOLET_GIT_PASSWORD": password,
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": key,
        "GIT_CONFIG_VALUE_0": "",
        "GIT_CONFIG_KEY_1": key,
        "GIT_CONFIG_VALUE_1": _HELPER,
    }
    return f"{scheme}{host}{rest}", env


def _repository_name(url: str) -> str:
    """Name of a repository: the last part of its URL."""
    path = re.sub(r"[?#].*", "", url, flags=re.DOTALL).rstrip("/")
    path = re.sub(r"/?\.git$", "", path).rstrip("/")
    name = re.split("[/:]", path)[-1]
    if name in ("", ".", ".."):
        raise UsageError(f"cannot derive a directory name from {url}", code="bad_url", hint="pass target_dir")
    return name
