"""Works in a sandbox with the public client of Cloudflare's bridge, as its documents show."""

import asyncio
import io
import os
import uuid

from agents.extensions.sandbox.cloudflare import (
    CloudflareSandboxClient,
    CloudflareSandboxClientOptions,
)
from agents.sandbox.errors import WorkspaceReadNotFoundError
from agents.sandbox.manifest import Manifest
from agents.sandbox.snapshot import LocalSnapshot

URL, KEY = os.environ["ISOLET_URL"], os.environ["ISOLET_API_KEY"]
# A resumed session takes its key from this variable.
os.environ["CLOUDFLARE_SANDBOX_API_KEY"] = KEY


async def commands(session):
    said = await session.exec("echo out; echo err >&2; exit 7")
    assert (said.stdout, said.stderr, said.exit_code) == (b"out\n", b"err\n", 7), said
    said = await session.exec("no such program", shell=False)
    assert said.exit_code == 127, said
    said = await session.exec("printf", "%s|", "it's", "$HOME", "", shell=False)
    assert said.stdout == b"it's|$HOME||", said
    said = await session.exec("head -c 3000000 /dev/zero | tr '\\0' x")
    assert len(said.stdout) == 3_000_000 and said.exit_code == 0
    said = await session.exec(r"printf '\377\000\n'")
    assert said.stdout == b"\xff\x00\n", said
    try:
        await session.exec("sleep 60", timeout=0.3)
        raise AssertionError("it ended without a reason")
    except Exception as error:
        assert "Exec" in type(error).__name__, error


async def files(session):
    data = bytes(range(256)) * 5000
    await session.write("a b/ü.bin", io.BytesIO(data))
    assert (await session.read("a b/ü.bin")).read() == data
    said = await session.exec("wc -c < '/workspace/a b/ü.bin'")
    assert said.stdout.strip() == b"1280000", said
    for missing in ["nothing.txt", "a b/c"]:
        try:
            await session.read(missing)
            raise AssertionError("it is there")
        except WorkspaceReadNotFoundError:
            pass


async def terminal(session):
    """Runs a command in a terminal, answers its prompt, and checks the `exit` frame."""
    update = await session.pty_exec_start(
        'read -p "name? " n; echo "hello $n"; tty', shell=True, tty=True, yield_time_s=1
    )
    assert b"name? " in update.output, update
    update = await session.pty_write_stdin(
        session_id=update.process_id, chars="you\n", yield_time_s=1
    )
    assert b"hello you" in update.output and b"/dev/pts/" in update.output, update
    update = await session.pty_write_stdin(
        session_id=update.process_id, chars="exit 3\n", yield_time_s=20
    )
    assert update.process_id is None and update.exit_code == 3, update


async def archive(session):
    await session.exec("mkdir -p keep/sub; echo 1 > keep/sub/one; ln -s sub keep/link; chmod 700 keep/sub/one")
    packed = (await session.persist_workspace()).read()
    await session.exec("rm -rf keep")
    await session.hydrate_workspace(io.BytesIO(packed))
    said = await session.exec("cat keep/link/one; stat -c %a keep/sub/one")
    assert said.stdout == b"1\n700\n", said


async def main():
    client = CloudflareSandboxClient()
    options = CloudflareSandboxClientOptions(worker_url=URL, api_key=KEY)
    snapshot = LocalSnapshot(id=str(uuid.uuid4()), base_path=os.environ["HOME"])
    manifest = Manifest(environment={"value": {"GREETING": "hi"}})
    session = await client.create(manifest=manifest, options=options, snapshot=snapshot)
    await session.start()
    assert await session.running()
    assert (await session.exec("echo $GREETING")).stdout == b"hi\n"
    await commands(session)
    await files(session)
    await terminal(session)
    await archive(session)
    await session.stop()

    # Another process, which has only this text.
    state = client.deserialize_session_state(client.serialize_session_state(session.state))
    again = await CloudflareSandboxClient().resume(state)
    await again.start()
    assert (await again.exec("cat keep/sub/one")).stdout == b"1\n"
    await client.delete(again)

    # The sandbox is deleted; the workspace that was saved at its stop is restored.
    state = client.deserialize_session_state(client.serialize_session_state(session.state))
    back = await CloudflareSandboxClient().resume(state)
    assert not await back.running()
    await back.start()
    assert (await back.exec("cat keep/link/one")).stdout == b"1\n"
    await client.delete(back)
    assert not await back.running()
    print("all answered")


asyncio.run(main())
