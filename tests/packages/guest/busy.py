"""Twenty busy sandboxes: each counts into its output and into a file, and a client follows the output."""

import re
import subprocess
import threading
import time
from pathlib import Path

from system import expect, isolet, say, wait_until

COUNT = 20
#: Writes a numbered line every two seconds, without starting a program, until /tmp/stop exists. An emulated machine
#: is slow: more lines only make the test longer.
COUNTER = """\
mkfifo /tmp/pause; exec 9<>/tmp/pause; i=0
while [ ! -e /tmp/stop ]; do
  i=$((i + 1)); printf -v line 'line %06d %064d' $i $i
  echo "$line"; echo "$line" >>/workspace/lines; read -t 2 -u 9
done"""


class Follower(threading.Thread):
    """A client that follows a counter, and continues at its position when the server is restarted."""

    def __init__(self, name: str) -> None:
        super().__init__(daemon=True)
        self.sandbox = name
        self.output = bytearray()
        self.continued = 0
        self.ended = False

    def run(self) -> None:
        """Follow until the counter has ended."""
        since = "0"
        while not self.ended:
            command = ["isolet", "logs", self.sandbox, "counter", "--follow", "--since", since]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as client:
                while data := client.stdout.read1():
                    self.output += data
                message = client.stderr.read().decode()
            self.ended = client.returncode == 0
            if at := re.search(r"--since (\d+)", message):
                since = at[1]
                self.continued += 1
            time.sleep(0.2)


class BusySandbox:
    """A sandbox with a counter and its follower."""

    def __init__(self, name: str) -> None:
        self.name = name
        isolet("exec", name, "--session", "work", "--", f"NAME={name}; cd /workspace")
        isolet("start", name, "--id", "counter", "--", COUNTER)
        self.follower = Follower(name)

    def lines(self) -> int:
        """How many lines the follower has received."""
        return self.follower.output.count(b"\n")

    def session(self) -> bytes:
        """The state of the session's shell, with its process."""
        return isolet("exec", self.name, "--session", "work", "--", "echo $NAME $PWD $$")


def start() -> list[BusySandbox]:
    """Start all of them, and wait until each has counted."""
    started = time.monotonic()
    sandboxes = [BusySandbox(f"busy{number:02}") for number in range(COUNT)]
    say(f"  {COUNT} sandboxes count after {time.monotonic() - started:.0f} s")
    for one in sandboxes:
        one.follower.start()
    wait_until("every counter counts", lambda: all(one.lines() > 2 for one in sandboxes))
    say(f"  {COUNT} clients follow them after {time.monotonic() - started:.0f} s")
    return sandboxes


def finish(sandboxes: list[BusySandbox]) -> None:
    """Stop the counters, and compare what clients received with the files inside."""
    for one in sandboxes:
        isolet("exec", one.name, "--", "touch /tmp/stop")
    wait_until("every client has received the end", lambda: all(one.follower.ended for one in sandboxes))
    total = 0
    for one in sandboxes:
        output = bytes(one.follower.output)
        inside = isolet("exec", one.name, "--", "cat /workspace/lines")
        numbers = [int(line.split()[1]) for line in output.splitlines()]
        assert output == inside, f"{one.name}: {len(output)} bytes received, {len(inside)} written"
        assert numbers == list(range(1, len(numbers) + 1)), one.name
        total += len(output)
        Path(f"/test/{one.name}.lines").write_bytes(inside)
    continued = min(one.follower.continued for one in sandboxes)
    expect(continued >= 1, f"each of {COUNT} clients continued at its position at least {continued} times")
    expect(True, f"they received {total} bytes, exactly those that the sandboxes wrote: no byte lost, none twice")
