"""An agent whose model is scripted, so that it needs no paid one: run a failing test, and fix the bug.

    python3 examples/fix_the_bug.py

Set ISOLET_URL and ISOLET_API_KEY, or run it on the server's machine, where the client reads the key file.
With a real model, pass its name or object to ``create_deep_agent``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from deepagents import create_deep_agent
from isolet import Isolet
from langchain_core.language_models import GenericFakeChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, HumanMessage, ToolCall
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool

from langchain_isolet import IsoletSandbox

SOURCE = "def add(a, b):\n    return a - b\n"
TEST = """\
import unittest
from add import add

class TestAdd(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(2, 3), 5)
"""
#: What the scripted model calls: tool, arguments.
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("execute", {"command": "cd /workspace && python3 -m unittest"}),
    ("edit_file", {"file_path": "/workspace/add.py", "old_string": "a - b", "new_string": "a + b"}),
    ("execute", {"command": "cd /workspace && python3 -m unittest"}),
]


class ScriptedModel(GenericFakeChatModel):
    """Answers with the next message of its script."""

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        **options: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Accept tools; the script names those that it calls."""
        return self


def main() -> int:
    """Run the agent, print the results of its tools, and run the tests once more."""
    steps = [
        AIMessage("", tool_calls=[ToolCall(name=tool, args=args, id=f"call-{number}")])
        for number, (tool, args) in enumerate(CALLS)
    ]
    model = ScriptedModel(messages=iter([*steps, AIMessage("Fixed.")]))
    # The edit keeps the size of the file, so Python could take a cached version for the new one.
    env = {"PYTHONDONTWRITEBYTECODE": "1"}
    with Isolet() as client, client.create_sandbox(memory_mib=512, network="none", env=env) as sandbox:
        sandbox.write_file("add.py", SOURCE)
        sandbox.write_file("test_add.py", TEST)
        agent = create_deep_agent(model=model, backend=IsoletSandbox(sandbox=sandbox, timeout=60))
        request = "The test in /workspace/test_add.py fails. Fix add.py."
        result = agent.invoke({"messages": [HumanMessage(request)]})
        for message in result["messages"]:
            if message.type == "tool":
                print(f"{message.name}: {str(message.content).strip().splitlines()[-1]}")
        passed = sandbox.exec("python3 -m unittest", timeout="1m").ok
    print("the tests pass" if passed else "the tests fail")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
