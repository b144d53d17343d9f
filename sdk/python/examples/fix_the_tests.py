"""An agent's turn in a session that sees one project: a failing test, an edit, a passing test.

    python3 examples/fix_the_tests.py

Set ISOLET_URL and ISOLET_API_KEY, or run it on the server's machine, where the client reads the key file.
"""

from __future__ import annotations

from isolet import FileAccess, Isolet

SOURCE = "def add(a, b):\n    return a - b\n"
TEST = """\
import unittest
from add import add

class TestAdd(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(2, 3), 5)
"""


def main() -> None:
    """Run the example."""
    with Isolet() as client, client.create_sandbox(sleep_after="10m") as sandbox:
        sandbox.write_file("project/add.py", SOURCE)
        sandbox.write_file("project/test_add.py", TEST)
        session = sandbox.create_session(
            name="agent",
            cwd="/workspace/project",
            env={"PYTHONDONTWRITEBYTECODE": "1"},
            file_access=FileAccess(write=["project"]),
            ttl="1h",
        )
        before = session.exec("python3 -m unittest", timeout="1m")
        print(f"before: exit {before.exit_code}: {before.stderr.splitlines()[-1]}")
        found = session.search("a - b", literal=True)
        for line in found.lines:
            text = session.read_file(line.path).replace("a - b", "a + b")
            session.write_file(line.path, text)
        session.exec("python3 -m unittest", timeout="1m").check()
        print(f"after: {len(found.lines)} line changed, the tests pass")


if __name__ == "__main__":
    main()
