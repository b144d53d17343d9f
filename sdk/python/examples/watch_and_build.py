"""Rebuilds whenever a file changes, in a persistent shell; asyncio.

python3 examples/watch_and_build.py
"""

from __future__ import annotations

import asyncio

from isolet import AsyncIsolet, AsyncSandbox


async def edit(sandbox: AsyncSandbox) -> None:
    """Change the file, as a developer would."""
    for number in range(3):
        await sandbox.write_file("src/number", str(number))
        await sandbox.exec(f"until [ -e built-{number} ]; do sleep 0.05; done")
    await sandbox.delete_file("src", recursive=True)


async def main() -> None:
    """Run the example."""
    async with AsyncIsolet() as client, await client.create_sandbox() as sandbox:
        await sandbox.mkdir("src")
        async with await sandbox.watch("src") as changes, sandbox.shell() as shell:
            await shell.run("builds=0")
            editing = asyncio.create_task(edit(sandbox))
            async for change in changes:
                if change.type not in ("created", "modified", "moved"):
                    continue
                built = await shell.run(
                    'builds=$((builds + 1)); touch "built-$(cat src/number)"; echo $builds'
                )
                print(f"{change.type} {change.path}: build {built.stdout.strip()}")
            await editing


if __name__ == "__main__":
    asyncio.run(main())
