"""An agent's loop: small commands in one bash, each answered before the next is chosen.

python3 examples/agent_loop.py

A model would choose the commands; here they are chosen by what the last one said.
"""

from __future__ import annotations

from collections.abc import Generator

from isolet import ExecResult, Isolet


def agent() -> Generator[str, ExecResult, None]:
    """Chooses commands: is sent each one's result, and ends when it is content."""
    yield "mkdir -p project && cd project && git init -q . 2>/dev/null; export STEP=1"
    yield "cat >count.sh <<'END'\nfor word in $(cat words); do echo $word; done | sort | uniq -c\nEND"
    result = yield "bash count.sh"
    if "No such file" in result.stderr:
        result = yield "printf 'b a b\\n' >words; bash count.sh"
    yield f"echo done after $STEP fix: {len(result.stdout.splitlines())} words; pwd"


def main() -> None:
    """Runs it."""
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
