"""Detaches from a terminal while a program runs, and resumes it later with its state intact; asyncio.

python3 examples/resume_terminal.py
"""

from __future__ import annotations

import asyncio

from isolet import AsyncIsolet, TerminalOutput, TerminalSnapshot


async def main() -> None:
    """Run the example."""
    async with AsyncIsolet() as client, await client.create_sandbox() as sandbox:
        async with sandbox.terminal(cols=100, rows=30, name="first") as first:
            await first.write("answer=$((6 * 7)); stty size; (sleep 0.3; touch later) &\n")
            await first.wait_for("30 100", timeout="10s")
            print("attached:", [client.name for client in first.clients])
            # Another process could resume the terminal with these two values.
            terminal, offset = await first.leave()

        # The terminal keeps running without clients.
        await sandbox.exec("until [ -e later ]; do sleep 0.05; done")
        async with sandbox.terminal(resume=terminal, since=offset, name="second") as second:
            await second.write("clear; echo the answer is $answer; exit 3\n")
            shown = ""
            async for event in second:
                if isinstance(event, (TerminalOutput, TerminalSnapshot)):
                    shown += event.text
            print("the answer is 42" in shown, second.exit)


if __name__ == "__main__":
    asyncio.run(main())
