"""Repositories cloned inside a sandbox, by its own git: how it is called, and what it says."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from .errors import GitError, UsageError
from .results import ExecResult
from .values import AnyPath, path_bytes

# Where, then git's own arguments. What is asked for are arguments alone: none of it is a shell's text.
_CLONE = r"""dir=$1; shift
git clone --quiet "$@" || exit
cd -- "$dir" && pwd && { git symbolic-ref --quiet --short HEAD || echo; } \
  && { git rev-parse --quiet --verify HEAD || echo; }"""

# Answers git with what only the environment holds: nothing of it is seen in arguments, output or files.
_HELPER = (
    r"""!f() { test "$1" = get && printf 'username=%s\npassword=%s\n' """
    r""""$ISOLET_GIT_USERNAME" "$ISOLET_GIT_PASSWORD"; }; f"""
)

_WITH_USER = re.compile(r"(https?://)([^/?#]*)@([^@/?#]*)((?:[/?#].*)?)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class GitCheckout:
    """A clone."""

    url: str  #: Without its credentials.
    branch: str | None  #: What is checked out; ``None`` where that is no branch (a tag).
    commit: str | None  #: What is checked out; ``None`` of a repository without commits.
    target_dir: str  #: From the root of the sandbox on.


@dataclass(frozen=True)
class GitCall:
    """How git is run: a program, its arguments and its environment."""

    url: str
    argv: list[str]
    env: dict[str, str] = field(repr=False)


def cloning(url: str, branch: str | None, target_dir: AnyPath | None, depth: int | None) -> GitCall:
    """What clones ``url``."""
    if depth is not None and depth < 1:
        raise UsageError(f"{depth} is no number of commits", code="bad_depth", hint="give 1 or more")
    plain, env = _parted(url)
    where = _named(plain) if target_dir is None else os.fsdecode(path_bytes(target_dir))
    words = ["--", plain, where]
    if depth is not None:
        words.insert(0, f"--depth={depth}")
    if branch is not None:
        words.insert(0, f"--branch={branch}")
    return GitCall(plain, ["bash", "-c", _CLONE, "git-checkout", where, *words], env)


def cloned(call: GitCall, result: ExecResult) -> GitCheckout:
    """What a clone has said."""
    if result.exit_code == 0:
        where, branch, commit = result.stdout.removesuffix("\n").rsplit("\n", 2)
        return GitCheckout(call.url, branch or None, commit or None, where)
    what = f"git clone {call.url}"
    if result.timed_out:
        hint = "what it has left in the target directory is to be deleted"
        raise GitError(f"{what}: not within the time", code="timeout", hint=hint)
    said = f"{what} has failed (exit {result.exit_code}): {result.stderr.strip()[-2000:]}"
    if result.exit_code == 127:
        raise GitError(said, code="no_git", hint="use an image that has git")
    raise GitError(said, code="git_failed", hint="a sandbox without network reaches itself alone")


def _parted(url: str) -> tuple[str, dict[str, str]]:
    """An address, and its credentials as an environment."""
    env = {"GIT_TERMINAL_PROMPT": "0"}
    match = _WITH_USER.fullmatch(url)
    if match is None:
        return url, env
    scheme, user, host, rest = match.groups()
    name, _, password = user.partition(":")
    name, password = unquote(name), unquote(password)
    if re.search(r"[\r\n\0]", name + password):
        raise UsageError("a user's name or password cannot hold a line break or NUL", code="bad_url")
    # For this host alone, in place of any other.
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


def _named(url: str) -> str:
    """A repository's name: the last part of its address."""
    path = re.sub(r"[?#].*", "", url, flags=re.DOTALL).rstrip("/")
    path = re.sub(r"/?\.git$", "", path).rstrip("/")
    name = re.split("[/:]", path)[-1]
    if name in ("", ".", ".."):
        raise UsageError(f"{url} names no repository", code="bad_url", hint="give target_dir")
    return name
