"""Results of code that ran in a code context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .models import time_from_ms
from .network_models import Denied


@dataclass(frozen=True)
class ContextInfo:
    """A code context: an interpreter with persistent variables and imports."""

    id: str
    language: str  #: ``python``, ``javascript``, ``typescript``, ``bash`` or ``jupyter``.
    kernel: str | None  #: Name of the Jupyter kernel; ``None`` without one.
    session: str | None  #: Session that owns the context, if any.
    cwd: str  #: Initial working directory.
    timeout: float  #: Default timeout of a run, in seconds.
    created_at: datetime
    pid: int | None  #: Interpreter's pid inside the sandbox; ``None`` before it starts.
    busy: bool  #: Code is running.
    queued: int  #: Number of waiting runs.
    runs: int  #: Number of runs started.
    restarts: int  #: Number of times the interpreter was restarted.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ContextInfo:
        """Parse the server's JSON."""
        return cls(
            id=body["id"],
            language=body["language"],
            kernel=body.get("kernel"),
            session=body["session"],
            cwd=body["cwd"],
            timeout=body["timeout_ms"] / 1000,
            created_at=time_from_ms(body["created_at_ms"]),
            pid=body["pid"],
            busy=body["busy"],
            queued=body["queued"],
            runs=body["runs"],
            restarts=body["restarts"],
        )


_CHARTS = ("application/vnd.plotly.", "application/vnd.vegalite.", "application/vnd.vega.")


#: Length of a value in the ``repr`` of a result, in characters, so that an image does not fill the screen.
_REPR_CHARS = 200


def _shortened(value: Any) -> str:
    text = repr(value)
    if len(text) <= _REPR_CHARS:
        return text
    return f"{text[:_REPR_CHARS]}… ({len(text)} characters)"


@dataclass(frozen=True, repr=False)
class CodeResult:
    """A value that the code displayed, in one or more media types. Images are base64 strings."""

    kind: str  #: ``result`` (value of the last expression) or ``display``.
    data: Mapping[str, Any]  #: Content by media type.
    metadata: Mapping[str, Any] = field(default_factory=dict)
    cut: Mapping[str, int] = field(default_factory=dict)  #: Sizes in bytes of omitted content, by media type.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> CodeResult:
        """Parse the server's JSON."""
        return cls(body["kind"], body["data"], body.get("metadata", {}), body.get("cut", {}))

    def __repr__(self) -> str:
        data = ", ".join(f"{kind!r}: {_shortened(value)}" for kind, value in self.data.items())
        cut = f", cut={dict(self.cut)}" if self.cut else ""
        return f"{type(self).__name__}(kind={self.kind!r}, data={{{data}}}{cut})"

    def _text(self, kind: str) -> str | None:
        value = self.data.get(kind)
        return value if value is None else str(value)

    @property
    def text(self) -> str | None:
        """Plain text; every result has it."""
        return self._text("text/plain")

    @property
    def html(self) -> str | None:
        """HTML, or ``None``."""
        return self._text("text/html")

    @property
    def markdown(self) -> str | None:
        """Markdown, or ``None``."""
        return self._text("text/markdown")

    @property
    def latex(self) -> str | None:
        """LaTeX, or ``None``."""
        return self._text("text/latex")

    @property
    def svg(self) -> str | None:
        """SVG markup, or ``None``."""
        return self._text("image/svg+xml")

    @property
    def png(self) -> str | None:
        """PNG image in base64, or ``None``."""
        return self._text("image/png")

    @property
    def jpeg(self) -> str | None:
        """JPEG image in base64, or ``None``."""
        return self._text("image/jpeg")

    @property
    def javascript(self) -> str | None:
        """JavaScript for a web page, or ``None``."""
        return self._text("application/javascript")

    @property
    def json(self) -> Any:
        """JSON value, or ``None``."""
        return self.data.get("application/json")

    @property
    def chart(self) -> Any:
        """Chart specification of Plotly, Vega or Vega-Lite for a web page to draw, or ``None``."""
        return next((value for kind, value in self.data.items() if kind.startswith(_CHARTS)), None)


@dataclass(frozen=True)
class CodeError:
    """An exception that ended a run."""

    name: str  #: Exception class, e.g. ``ValueError``; ``ContextDied`` when the interpreter exited.
    message: str
    traceback: tuple[str, ...]  #: Lines, without frames of Isolet's driver.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> CodeError:
        """Parse the server's JSON."""
        return cls(body["name"], body["message"], tuple(body["traceback"]))


@dataclass(frozen=True)
class CodeEvent:
    """An event of a running piece of code."""

    type: str  #: ``stdout``, ``stderr``, ``result`` or ``error``.
    text: str = ""  #: Output text, for ``stdout`` and ``stderr``.
    result: CodeResult | None = None  #: Set for ``result``.
    error: CodeError | None = None  #: Set for ``error``.


@dataclass(frozen=True)
class Execution:
    """Outcome of a run. An exception in the code is stored in ``error``; it is not raised."""

    code: str = field(repr=False)
    results: tuple[CodeResult, ...]  #: Displayed values, in order.
    error: CodeError | None  #: Exception that ended the run, if any.
    stdout: str
    stderr: str
    number: int  #: Number of this run in its context, from 1.
    duration: float  #: Seconds.
    timed_out: bool = False  #: The timeout ended the run.
    interrupted: bool = False  #: Interrupted, or its context was restarted or deleted.
    oom: bool = False  #: The kernel's OOM killer was active in the sandbox during the run.
    died: bool = False  #: The interpreter exited: all variables are lost.
    fresh: bool = False  #: Ran in a new interpreter, after the previous one exited.
    #: In the first result after the sandbox slept: what did not survive the sleep.
    lost: tuple[str, ...] | None = None
    denied: tuple[Denied, ...] = ()  #: Connections the network rules denied during the run.
    denied_lost: int = 0  #: Number of further denials that are not listed.

    @property
    def text(self) -> str | None:
        """Value of the last expression as text, or ``None``."""
        values = [result for result in self.results if result.kind == "result"]
        return values[-1].text if values else None


class RunCollector:
    """Assembles the result of a run from streamed events."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._output: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._results: list[CodeResult] = []
        self._error: CodeError | None = None

    def take(self, name: str, body: Mapping[str, Any]) -> CodeEvent:
        """Add an event and convert it for the caller."""
        if name == "result":
            self._results.append(CodeResult.from_json(body))
            return CodeEvent("result", result=self._results[-1])
        if name == "exception":
            self._error = CodeError.from_json(body)
            return CodeEvent("error", error=self._error)
        self._output[name].append(body["data"])
        return CodeEvent(name, text=body["data"])

    def end(self, body: Mapping[str, Any]) -> Execution:
        """Build the complete result from the last event."""
        stdout, stderr = ("".join(self._output[name]) for name in ("stdout", "stderr"))
        return execution(self._code, tuple(self._results), self._error, stdout, stderr, body)


def execution_from_json(code: str, body: Mapping[str, Any]) -> Execution:
    """Parse a complete JSON response."""
    error = body["exception"]
    results = tuple(CodeResult.from_json(one) for one in body["results"])
    fault = None if error is None else CodeError.from_json(error)
    return execution(code, results, fault, body["stdout"], body["stderr"], body)


def execution(
    code: str,
    results: tuple[CodeResult, ...],
    error: CodeError | None,
    stdout: str,
    stderr: str,
    body: Mapping[str, Any],
) -> Execution:
    """Build an :class:`Execution` from its parts."""
    lost = body.get("lost")
    return Execution(
        code=code,
        results=results,
        error=error,
        stdout=stdout,
        stderr=stderr,
        number=body["run"],
        duration=round(body["duration_ms"] / 1000, 6),
        timed_out=body["timed_out"],
        interrupted=body["interrupted"],
        oom=body["oom"],
        died=body["died"] is not None,
        fresh=body["fresh"],
        lost=None if lost is None else tuple(lost),
        denied=tuple(Denied.from_json(one) for one in body.get("denied") or ()),
        denied_lost=body.get("denied_lost", 0),
    )
