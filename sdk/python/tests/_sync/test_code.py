"""Code contexts: what stays in them, and what a run gives."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

import pytest

from isolet import Sandbox, CodeEvent, ConflictError, NotFoundError

pytestmark = pytest.mark.anyio


def test_what_a_run_makes_stays_for_the_next(sandbox: Sandbox) -> None:
    sandbox.run_code("import math\nx = 20")
    execution = sandbox.run_code("print('hi')\nmath.floor(x + 22.5)")
    assert (execution.text, execution.stdout, execution.error) == ("42", "hi\n", None)
    assert (execution.number, execution.died, execution.fresh) == (2, False, False)
    sandbox.run_code("const x = 2", language="javascript")
    execution = sandbox.run_code("({ x })", language="javascript")
    assert execution.results[0].json == {"x": 2}


def test_what_a_library_says_of_a_chart_is_told(sandbox: Sandbox) -> None:
    chart = {"data": [{"type": "bar", "y": [1, 2]}], "layout": {}}
    shows = f"""
class Figure:
    def _repr_mimebundle_(self, **_):
        return {{"application/vnd.plotly.v1+json": {chart!r}, "application/javascript": "draw()"}}
Figure()
"""
    (result,) = (sandbox.run_code(shows)).results
    assert (result.chart, result.javascript) == (chart, "draw()")
    assert (sandbox.run_code("1")).results[0].chart is None


def test_contexts_are_made_listed_and_ended(sandbox: Sandbox) -> None:
    context = sandbox.create_context("mine", cwd="/usr", env={"A": "b"}, timeout=5)
    assert (context.run("import os; (os.getcwd(), os.environ['A'])")).text == "('/usr', 'b')"
    with pytest.raises(ConflictError):
        sandbox.create_context("mine")
    (info,) = sandbox.contexts()
    assert (info.id, info.language, info.timeout, info.runs) == ("mine", "python", 5, 1)
    assert context.interrupt() is False
    assert (context.restart()).restarts == 1
    assert (context.run("os")).error is not None
    context.delete()
    context.delete()
    with pytest.raises(NotFoundError) as raised:
        context.run("1")
    assert raised.value.code == "no_context"


def test_an_error_is_told_and_not_raised(sandbox: Sandbox) -> None:
    error = (sandbox.run_code("def f():\n    return 1 / 0\nf()")).error
    assert error is not None
    assert (error.name, error.message) == ("ZeroDivisionError", "division by zero")
    assert "return 1 / 0" in "\n".join(error.traceback)


def test_what_happens_is_told_in_its_order(sandbox: Sandbox) -> None:
    heard: list[str] = []

    def hear(event: CodeEvent) -> None:
        heard.append(event.result.text or "" if event.result else event.text or event.type)

    code = "import sys\nprint('a')\nprint('b', file=sys.stderr)\ndisplay(3)\nprint('c')\n4"
    execution = sandbox.run_code(code, on_event=hear)
    assert heard == ["a\n", "b\n", "3", "c\n", "4"]
    assert (execution.stdout, execution.stderr, execution.text) == ("a\nc\n", "b\n", "4")
    assert [one.kind for one in execution.results] == ["display", "result"]


def test_a_run_ends_at_its_timeout_or_when_it_is_left(sandbox: Sandbox) -> None:
    context = sandbox.context("python")
    context.run("kept = 1")
    execution = context.run("while True: pass", timeout=0.2)
    assert execution.timed_out
    assert execution.error is not None
    with context.stream("print('on')\nwhile True: pass") as events:
        for event in events:
            assert event.text == "on\n"
            break
    assert (context.run("kept")).text == "1"


def test_input_is_what_came_with_the_run(sandbox: Sandbox) -> None:
    assert (sandbox.run_code("input()", stdin="typed\n")).text == "'typed'"
    error = (sandbox.run_code("input()")).error
    assert error is not None
    assert error.name == "EOFError"
