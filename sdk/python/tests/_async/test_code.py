"""Code contexts: persistent state and results of runs."""

from __future__ import annotations

import pytest

from isolet import AsyncSandbox, CodeEvent, ConflictError, NotFoundError

pytestmark = pytest.mark.anyio


async def test_variables_persist_for_the_next_run(sandbox: AsyncSandbox) -> None:
    await sandbox.run_code("import math\nx = 20")
    execution = await sandbox.run_code("print('hi')\nmath.floor(x + 22.5)")
    assert (execution.text, execution.stdout, execution.error) == ("42", "hi\n", None)
    assert (execution.number, execution.died, execution.fresh) == (2, False, False)
    await sandbox.run_code("const x = 2", language="javascript")
    execution = await sandbox.run_code("({ x })", language="javascript")
    assert execution.results[0].json == {"x": 2}


async def test_a_charts_specification_is_a_result(sandbox: AsyncSandbox) -> None:
    chart = {"data": [{"type": "bar", "y": [1, 2]}], "layout": {}}
    shows = f"""
class Figure:
    def _repr_mimebundle_(self, **_):
        return {{"application/vnd.plotly.v1+json": {chart!r}, "application/javascript": "draw()"}}
Figure()
"""
    (result,) = (await sandbox.run_code(shows)).results
    assert (result.chart, result.javascript) == (chart, "draw()")
    assert (await sandbox.run_code("1")).results[0].chart is None


async def test_contexts_are_created_listed_and_deleted(sandbox: AsyncSandbox) -> None:
    context = await sandbox.create_context("mine", cwd="/usr", env={"A": "b"}, timeout=5)
    assert (await context.run("import os; (os.getcwd(), os.environ['A'])")).text == "('/usr', 'b')"
    with pytest.raises(ConflictError):
        await sandbox.create_context("mine")
    (info,) = await sandbox.contexts()
    assert (info.id, info.language, info.timeout, info.runs) == ("mine", "python", 5, 1)
    assert await context.interrupt() is False
    assert (await context.restart()).restarts == 1
    assert (await context.run("os")).error is not None
    await context.delete()
    await context.delete()
    with pytest.raises(NotFoundError) as raised:
        await context.run("1")
    assert raised.value.code == "no_context"


async def test_an_exception_in_the_code_is_returned_and_not_raised(sandbox: AsyncSandbox) -> None:
    error = (await sandbox.run_code("def f():\n    return 1 / 0\nf()")).error
    assert error is not None
    assert (error.name, error.message) == ("ZeroDivisionError", "division by zero")
    assert "return 1 / 0" in "\n".join(error.traceback)


async def test_events_arrive_in_order(sandbox: AsyncSandbox) -> None:
    received: list[str] = []

    def hear(event: CodeEvent) -> None:
        received.append(event.result.text or "" if event.result else event.text or event.type)

    code = "import sys\nprint('a')\nprint('b', file=sys.stderr)\ndisplay(3)\nprint('c')\n4"
    execution = await sandbox.run_code(code, on_event=hear)
    assert received == ["a\n", "b\n", "3", "c\n", "4"]
    assert (execution.stdout, execution.stderr, execution.text) == ("a\nc\n", "b\n", "4")
    assert [one.kind for one in execution.results] == ["display", "result"]


async def test_a_run_ends_at_its_timeout_or_when_its_stream_is_closed(sandbox: AsyncSandbox) -> None:
    context = sandbox.context("python")
    await context.run("value = 1")
    execution = await context.run("while True: pass", timeout=0.2)
    assert execution.timed_out
    assert execution.error is not None
    async with await context.stream("print('on')\nwhile True: pass") as events:
        async for event in events:
            assert event.text == "on\n"
            break
    assert (await context.run("value")).text == "1"


async def test_a_run_reads_the_input_that_was_sent_with_it(sandbox: AsyncSandbox) -> None:
    assert (await sandbox.run_code("input()", stdin="typed\n")).text == "'typed'"
    error = (await sandbox.run_code("input()")).error
    assert error is not None
    assert error.name == "EOFError"


async def test_a_run_has_variables_of_its_own(sandbox: AsyncSandbox) -> None:
    code = "import os; os.environ.get('GREETING'), os.environ.get('HOME')"
    result = await sandbox.run_code(code, env={"GREETING": "hello", "HOME": None})
    assert result.text == "('hello', None)"
    async with await sandbox.context("python").stream(code, env={"GREETING": "again"}) as events:
        assert "'again'" in str((await events.result()).text)
    assert str((await sandbox.run_code(code)).text).startswith("(None, ")


async def test_only_a_structured_context_returns_containers_as_data(sandbox: AsyncSandbox) -> None:
    for structured in (True, False):
        context = await sandbox.create_context(language="python", structured=structured)
        result = await context.run("{'a': [1, 2]}")
        assert result.text == "{'a': [1, 2]}"
        assert result.results[0].data.get("application/json") == ({"a": [1, 2]} if structured else None)


async def test_the_repr_of_a_result_shows_its_data(sandbox: AsyncSandbox) -> None:
    execution = await sandbox.run_code("display('x' * 1000)\n6 * 7")
    long, short = (repr(result) for result in execution.results)
    assert short == "CodeResult(kind='result', data={'text/plain': '42'})"
    assert "xxx" in long
    assert "(1004 characters)" in long
    assert len(long) < 300
    assert short in repr(execution)
