"""What programs see as the machine: the memory and the processors of their sandbox, from cgroup v2."""

import json

from system import expect, isolet, run, wait_until

#: The size of the program that takes memory, in MiB.
HUNGRY_MIB = 60
HUNGRY = f"python3 -c 'import signal; held = b\"x\" * ({HUNGRY_MIB} << 20); signal.pause()'"
#: What else may change while that program starts, in MiB.
TOLERANCE_MIB = 12


def meminfo() -> dict[str, int]:
    """The lines of `/proc/meminfo` inside, in MiB."""
    text = isolet("exec", "seen", "--", "cat /proc/meminfo").decode()
    return {line.split(":")[0]: int(line.split()[1]) // 1024 for line in text.splitlines()}


def used_since(available: int) -> int:
    """How much less memory is available than before, in MiB."""
    return available - meminfo()["MemAvailable"]


def change(**limits: int) -> None:
    """Change limits of the sandbox while it runs."""
    run("python3", "/test/guest/call.py", "PATCH", "/v1/sandboxes/seen", json.dumps(limits))


def visible_limits() -> None:
    """The limits of one sandbox, which change while it runs."""
    isolet("create", "seen", "--memory", "256", "--cpu", "1000")
    processors()
    memory()
    isolet("rm", "seen")


def nproc() -> int:
    """The number of processors that programs count inside."""
    return int(isolet("exec", "seen", "--", "nproc"))


def processors() -> None:
    """A limit that covers one processor, all of the machine, and one again."""
    expect(nproc() == 1, "nproc counts the processor that the limit covers")
    change(cpu_millis=2000)
    expect(nproc() == 2, "both processors once the limit covers them")
    change(cpu_millis=1000)
    expect(nproc() == 1, "and one again")


def memory() -> None:
    """The limit, a change of it, and a program that takes memory."""
    total = isolet("exec", "seen", "--", "free -m | awk '/^Mem:/ { print $2 }'")
    expect(total == b"256\n", "free shows the memory limit of its sandbox")
    change(memory_mib=192)
    expect(meminfo()["MemTotal"] == 192, "and the new one at once when it changes")

    before = meminfo()["MemAvailable"]
    isolet("start", "seen", "--id", "hungry", "--", HUNGRY)
    low, high = HUNGRY_MIB - TOLERANCE_MIB, HUNGRY_MIB + TOLERANCE_MIB
    wait_until("the program's memory is in use", lambda: low < used_since(before) < high)
    expect(True, f"a program of {HUNGRY_MIB} MiB makes as much less available")
    isolet("kill", "seen", "hungry")
    wait_until("its memory is available again", lambda: used_since(before) < TOLERANCE_MIB)
    expect(True, "and its end makes it available again")
