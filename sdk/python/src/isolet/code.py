"""What comes of code that runs in a context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .models import Denied, moment


@dataclass(frozen=True)
class ContextInfo:
    """A code context, as the server has it."""

    id: str
    language: str  #: ``python``, ``javascript``, ``typescript``, ``bash`` or ``jupyter``.
    kernel: str | None  #: The Jupyter kernel that runs it; ``None``: none does.
    session: str | None  #: Whose it is, if a session's.
    cwd: str  #: Where it started.
    timeout: float  #: For runs that name none, in seconds.
    created_at: datetime
    pid: int | None  #: Of its interpreter, inside; ``None`` while there is none.
    busy: bool  #: Something runs.
    queued: int  #: Runs that wait.
    runs: int  #: Runs that have begun.
    restarts: int  #: How often its interpreter was started anew.

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> ContextInfo:
        """Reads it from JSON."""
        return cls(
            id=told["id"],
            language=told["language"],
            kernel=told.get("kernel"),
            session=told["session"],
            cwd=told["cwd"],
            timeout=told["timeout_ms"] / 1000,
            created_at=moment(told["created_at_ms"]),
            pid=told["pid"],
            busy=told["busy"],
            queued=told["queued"],
            runs=told["runs"],
            restarts=told["restarts"],
        )


_CHARTS = ("application/vnd.plotly.", "application/vnd.vegalite.", "application/vnd.vega.")


@dataclass(frozen=True)
class CodeResult:
    """Something that code shows, by its kinds. Pictures are in base64."""

    kind: str  #: ``result``: the value of the last expression; ``display``: what the code has shown.
    data: Mapping[str, Any] = field(repr=False)  #: By media type.
    metadata: Mapping[str, Any] = field(default_factory=dict, repr=False)
    cut: Mapping[str, int] = field(default_factory=dict)  #: Bytes of what was left out, by media type.

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> CodeResult:
        """Reads it from JSON."""
        return cls(told["kind"], told["data"], told.get("metadata", {}), told.get("cut", {}))

    def _text(self, kind: str) -> str | None:
        value = self.data.get(kind)
        return value if value is None else str(value)

    @property
    def text(self) -> str | None:
        """As text; every result has one."""
        return self._text("text/plain")

    @property
    def html(self) -> str | None:
        """As HTML."""
        return self._text("text/html")

    @property
    def markdown(self) -> str | None:
        """As Markdown."""
        return self._text("text/markdown")

    @property
    def latex(self) -> str | None:
        """As LaTeX."""
        return self._text("text/latex")

    @property
    def svg(self) -> str | None:
        """As SVG."""
        return self._text("image/svg+xml")

    @property
    def png(self) -> str | None:
        """As PNG, in base64."""
        return self._text("image/png")

    @property
    def jpeg(self) -> str | None:
        """As JPEG, in base64."""
        return self._text("image/jpeg")

    @property
    def javascript(self) -> str | None:
        """As a script for a page."""
        return self._text("application/javascript")

    @property
    def json(self) -> Any:
        """As JSON."""
        return self.data.get("application/json")

    @property
    def chart(self) -> Any:
        """What a library says of a chart, for pages to draw: of Plotly, Vega or Vega-Lite."""
        return next((value for kind, value in self.data.items() if kind.startswith(_CHARTS)), None)


@dataclass(frozen=True)
class CodeError:
    """What ended a run."""

    name: str  #: Its class: ``ValueError``, …; ``ContextDied`` where the interpreter has ended.
    message: str
    traceback: tuple[str, ...]  #: Line by line; none of the driver's.

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> CodeError:
        """Reads it from JSON."""
        return cls(told["name"], told["message"], tuple(told["traceback"]))


@dataclass(frozen=True)
class CodeEvent:
    """Something that happens in a run, in its order."""

    type: str  #: ``stdout``, ``stderr``, ``result`` or ``error``.
    text: str = ""  #: Of output.
    result: CodeResult | None = None  #: Of ``result``.
    error: CodeError | None = None  #: Of ``error``.


@dataclass(frozen=True)
class Execution:
    """What came of a run. Errors of the code are told here, and not raised."""

    code: str = field(repr=False)
    results: tuple[CodeResult, ...]  #: What was shown, in order.
    error: CodeError | None  #: What ended it, where something did.
    stdout: str
    stderr: str
    number: int  #: Counts the runs of the context, from 1.
    duration: float  #: Seconds from its beginning to its end.
    timed_out: bool = False  #: Its timeout ended it.
    interrupted: bool = False  #: Somebody interrupted it, or its context was restarted or deleted.
    oom: bool = False  #: The kernel killed something of the sandbox for memory meanwhile.
    died: bool = False  #: Its interpreter ended with it: all variables are lost.
    fresh: bool = False  #: It ran in an interpreter that replaced one which had ended.
    #: In the first answer after the sandbox slept: what that has ended.
    lost: tuple[str, ...] | None = None
    denied: tuple[Denied, ...] = ()  #: What was refused to the sandbox while it ran.
    denied_lost: int = 0  #: How much more was refused.

    @property
    def text(self) -> str | None:
        """The value of the last expression, as text."""
        last = [one for one in self.results if one.kind == "result"]
        return last[-1].text if last else None


class Gathered:
    """A run that is told piece by piece, made one again."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._said: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._results: list[CodeResult] = []
        self._error: CodeError | None = None

    def take(self, name: str, told: Mapping[str, Any]) -> CodeEvent:
        """One event of the server."""
        if name == "result":
            self._results.append(CodeResult.of(told))
            return CodeEvent("result", result=self._results[-1])
        if name == "exception":
            self._error = CodeError.of(told)
            return CodeEvent("error", error=self._error)
        self._said[name].append(told["data"])
        return CodeEvent(name, text=told["data"])

    def end(self, told: Mapping[str, Any]) -> Execution:
        """All of it, by its last event."""
        stdout, stderr = ("".join(self._said[name]) for name in ("stdout", "stderr"))
        return execution(self._code, tuple(self._results), self._error, stdout, stderr, told)


def answered(code: str, told: Mapping[str, Any]) -> Execution:
    """What one JSON answer holds."""
    error = told["exception"]
    results = tuple(CodeResult.of(one) for one in told["results"])
    fault = None if error is None else CodeError.of(error)
    return execution(code, results, fault, told["stdout"], told["stderr"], told)


def execution(
    code: str,
    results: tuple[CodeResult, ...],
    error: CodeError | None,
    stdout: str,
    stderr: str,
    told: Mapping[str, Any],
) -> Execution:
    """One run, with how it ended."""
    lost = told.get("lost")
    return Execution(
        code=code,
        results=results,
        error=error,
        stdout=stdout,
        stderr=stderr,
        number=told["run"],
        duration=told["duration_ms"] / 1000,
        timed_out=told["timed_out"],
        interrupted=told["interrupted"],
        oom=told["oom"],
        died=told["died"] is not None,
        fresh=told["fresh"],
        lost=None if lost is None else tuple(lost),
        denied=tuple(Denied.of(one) for one in told.get("denied") or ()),
        denied_lost=told.get("denied_lost", 0),
    )
