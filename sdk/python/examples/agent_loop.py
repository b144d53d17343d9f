"""An agent loop: small commands in one shell, each chosen from the result of the previous one.

    python3 examples/agent_loop.py

In a real agent a model chooses the commands; here a generator does.
"""

from __future__ import annotations

from collections.abc import Generator

from isolet import ExecResult, Isolet


def agent() -> Generator[str, ExecResult, None]:
    """Yield commands; receives each result, and stops when the task is done."""
    yield "mkdir -p project && cd project && git init -q . 2>/dev/null; export STEP=1"
    yield "cat >count.sh <<'END'\nfor word in $(cat words); do echo $word; done | sort | uniq -c\nEND"
    result = yield "bash count.sh"
    if "No such file" in result.stderr:
        result = yield "printf 'b a b\\n' >words; bash count.sh"
    yield f"echo done after $STEP fix: {len(result.stdout.splitlines())} words; pwd"


def main() -> None:
    """Run the example."""
    with Isolet() as client, client.create_sandbox() as sandbox, sandbox.shell() as shell:
        turns = agent()
        command = next(turns)
        try:
            while True:
                result = shell.run(command, timeout="1m")
                first = command.splitlines()[0]
                print(
                    f"$ {first}\n{result.stdout}{result.stderr}[{result.exit_code}, {result.duration:.3f} s]"
                )
                command = turns.send(result)
        except StopIteration:
            return


if __name__ == "__main__":
    main()
