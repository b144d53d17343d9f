"""Makes every call of E2B's public client of the code interpreter, with its own methods."""

import asyncio
import os
import sys

from e2b_code_interpreter import AsyncSandbox, Sandbox
from e2b_code_interpreter.charts import BarChart, SuperChart
from e2b import InvalidArgumentException, NotFoundException, TimeoutException

FIGURE = """
import matplotlib.pyplot as plt
plt.bar(["a", "b"], [3, 5], label="both")
plt.title("Title")
plt.ylabel("Length (m)")
plt.show()
"""
TWO = """
fig, axes = plt.subplots(1, 2)
axes[0].plot([1, 2, 3], [4, 5, 6], label="line")
axes[1].scatter([1, 2], [3, 4])
plt.show()
"""


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"it was not refused with {kind}")


def python(sandbox):
    said = sandbox.run_code("x = 41\nprint('out')\nimport sys; print('err', file=sys.stderr)\nx + 1")
    assert said.text == "42" and said.execution_count == 1, said
    assert (said.logs.stdout, said.logs.stderr) == (["out\n"], ["err\n"]), said
    assert sandbox.run_code("x").text == "41", "variables stay"
    assert "".join(sandbox.run_code("!pwd").logs.stdout).strip() == "/home/user"
    error = sandbox.run_code("1 / 0").error
    assert error.name == "ZeroDivisionError" and "1 / 0" in error.traceback, error
    seen = []
    calls = dict.fromkeys(("on_stdout", "on_stderr", "on_result", "on_error"), seen.append)
    sandbox.run_code("print(1)\n2", **calls)
    assert len(seen) == 2, seen
    sandbox.run_code("import os")
    assert sandbox.run_code("os.environ['A']", envs={"A": "1"}).text == "1"
    assert sandbox.run_code("os.environ.get('A', 'none')").text == "none"
    assert sandbox.run_code("os.environ['GREETING']", envs={"GREETING": "bye"}).text == "bye"
    assert sandbox.run_code("os.environ['GREETING']").text == "hello"
    refused(TimeoutException, lambda: sandbox.run_code("import time; time.sleep(60)", timeout=1))
    assert sandbox.run_code("1 + 1", timeout=20).text == "2", "the client's end interrupted it"


def results(sandbox):
    shown = sandbox.run_code("from IPython.display import HTML, display\ndisplay(HTML('<b>'))\n'end'")
    assert [one.is_main_result for one in shown.results] == [False, True], shown
    assert shown.results[0].html == "<b>" and shown.text == "end", shown
    raw = sandbox.run_code("display({'text/latex': 'x', 'a/b': 1}, raw=True)").results[0]
    assert raw.latex == "x" and raw.extra == {"a/b": 1}, raw
    assert sandbox.run_code("{'a': [1, None]}").results[0].json == {"a": [1, None]}
    bars = sandbox.run_code(FIGURE).results[0]
    assert bars.png and not bars.extra, bars.formats()
    chart = bars.chart
    assert isinstance(chart, BarChart) and (chart.title, chart.y_unit) == ("Title", "m"), chart
    assert [(one.label, one.value) for one in chart.elements] == [("a", 3), ("b", 5)]
    both = sandbox.run_code(TWO).results[0].chart
    assert isinstance(both, SuperChart), both
    assert both.elements[0].elements[0].points == [(1, 4), (2, 5), (3, 6)]


def languages(sandbox):
    said = sandbox.run_code("console.log('js'); process.cwd()", language="js")
    assert (said.logs.stdout, said.text) == (["js\n"], "/home/user"), said
    assert sandbox.run_code("process.env.A", language="js", envs={"A": "1"}).text == "1"
    assert sandbox.run_code("process.env.A ?? 'none'", language="javascript").text == "none"
    said = sandbox.run_code("echo $A; pwd", language="bash", envs={"A": "1"})
    assert "".join(said.logs.stdout) == "1\n/home/user\n", said
    assert "".join(sandbox.run_code("echo ${A:-none}", language="bash").logs.stdout) == "none\n"
    error = refused(Exception, lambda: sandbox.run_code("1", language="cobol"))
    assert "501" in str(error) and "cobol" in str(error), error


def contexts(sandbox):
    assert {"python", "javascript"} <= {one.language for one in sandbox.list_code_contexts()}
    own = sandbox.create_code_context(cwd="/tmp", language="python")
    assert (own.language, own.cwd) == ("python", "/tmp"), own
    assert sandbox.list_code_contexts()[-1].id == own.id
    assert sandbox.run_code("import os; y = 1; os.getcwd()", context=own).text == "/tmp"
    assert sandbox.run_code("y").error.name == "NameError"
    sandbox.restart_code_context(own)
    assert sandbox.run_code("y", context=own).error.name == "NameError"
    sandbox.remove_code_context(own)
    assert own.id not in [one.id for one in sandbox.list_code_contexts()]
    refused(NotFoundException, lambda: sandbox.run_code("1", context=own))
    refused(NotFoundException, lambda: sandbox.remove_code_context(own))
    refused(NotFoundException, lambda: sandbox.restart_code_context("nosuch"))
    python = dict(language="python", context=own)
    refused(InvalidArgumentException, lambda: sandbox.run_code("1", **python))


async def asynchronous():
    sandbox = await AsyncSandbox.create(timeout=300)
    context = await sandbox.create_code_context(language="bash")
    said = await sandbox.run_code("echo async", context=context)
    assert said.logs.stdout == ["async\n"], said
    assert context.id in [one.id for one in await sandbox.list_code_contexts()]
    await sandbox.restart_code_context(context)
    await sandbox.remove_code_context(context)
    started = asyncio.Event()
    code = "print('begun', flush=True); import time; time.sleep(60)"
    running = asyncio.create_task(sandbox.run_code(code, on_stdout=lambda _: started.set()))
    await asyncio.wait_for(started.wait(), 60)
    await sandbox.kill()
    try:
        await running
        raise AssertionError("it ended well")
    except TimeoutException as error:
        assert "was killed" in str(error), error


def main():
    sandbox = Sandbox.create(timeout=600, envs={"GREETING": "hello"})
    python(sandbox)
    results(sandbox)
    languages(sandbox)
    contexts(sandbox)
    # E2B's other client sees the same sandbox.
    assert sandbox.commands.run("echo both").stdout == "both\n"
    assert sandbox.kill()
    asyncio.run(asynchronous())
    print("all answered")


main()
# A thread of the client's HTTP library that takes the interpreter's lock while the interpreter ends aborts the
# process in some runs, with all calls answered. The end of the interpreter is not what is tested here.
sys.stdout.flush()
os._exit(0)
