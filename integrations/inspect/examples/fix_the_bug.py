"""A task whose solution is scripted, so that it needs no paid model: find the failing test, and fix the bug.

    python3 examples/fix_the_bug.py

Set ISOLET_URL and ISOLET_API_KEY, or run it on the server's machine, where the client reads the key file.
With a real model: ``inspect eval examples/fix_the_bug.py --model openai/gpt-5``.
"""

from __future__ import annotations

import sys
import tempfile

from inspect_ai import Task, task
from inspect_ai import eval as evaluate
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import TaskState, generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import SandboxEnvironmentSpec, sandbox

from isolet_inspect import IsoletSandboxConfig

SOURCE = "def add(a, b):\n    return a - b\n"
TEST = """\
import unittest
from add import add

class TestAdd(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(2, 3), 5)
"""
#: What the scripted model runs.
COMMANDS = ["python3 -m unittest", "sed -i 's/a - b/a + b/' add.py", "python3 -m unittest"]


@scorer(metrics=[accuracy()])
def tests_pass() -> Scorer:
    """Run the tests in the sandbox, after the model is done."""

    async def score(state: TaskState, target: Target) -> Score:
        result = await sandbox().exec(["python3", "-m", "unittest"], timeout=60)
        return Score(value="C" if result.success else "I", explanation=result.stderr)

    return score


@task
def fix_the_bug() -> Task:
    """One sample, in a sandbox with 512 MiB of memory and without network."""
    sample = Sample(
        input="The test in test_add.py fails. Fix add.py.", files={"add.py": SOURCE, "test_add.py": TEST}
    )
    config = IsoletSandboxConfig(
        memory_mib=512,
        network="none",
        # The edit keeps the size of the file, so Python could take a cached version for the new one.
        env=(("PYTHONDONTWRITEBYTECODE", "1"),),
    )
    return Task(
        dataset=[sample],
        solver=[use_tools(bash(timeout=60)), generate()],
        scorer=tests_pass(),
        sandbox=SandboxEnvironmentSpec("isolet", config),
    )


def main() -> int:
    """Run the task with the scripted model, and print its score."""
    outputs = [ModelOutput.for_tool_call("mockllm/model", "bash", {"command": one}) for one in COMMANDS]
    outputs.append(ModelOutput.from_content("mockllm/model", "Fixed."))
    for output in outputs:
        # Otherwise Inspect counts tokens, for which it downloads a vocabulary.
        output.usage = ModelUsage()
    model = get_model("mockllm/model", custom_outputs=outputs)
    with tempfile.TemporaryDirectory() as logs:
        [log] = evaluate(fix_the_bug(), model=model, display="none", log_dir=logs)
        return report(log)


def report(log: EvalLog) -> int:
    """Print the results of the tools, and the score."""
    if log.results is None or not log.samples:
        print(f"the evaluation failed: {log.error.message if log.error else log.status}")
        return 1
    for message in log.samples[0].messages:
        if message.role == "tool":
            print(f"{message.function}: {''.join(message.text.strip().splitlines()[-1:])}")
    value = log.results.scores[0].metrics["accuracy"].value
    print(f"accuracy: {value}")
    return 0 if value == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
