"""An upgrade and a crash of the server under busy sandboxes."""

import time

from first_use import install_package
from system import agents, answers, expect, main_pid, run, say, wait_until


def upgrade(sandboxes) -> None:
    """Install the new package while all sandboxes count."""
    old_version = run("dpkg-query", "-W", "-f", "${Version}", "isolet")
    old_pid = main_pid()
    old_agents = agents()
    old_sessions = [one.session() for one in sandboxes]
    old_lines = [one.lines() for one in sandboxes]
    seconds = install_package("/test/isolet.deb")
    version = run("dpkg-query", "-W", "-f", "${Version}", "isolet")
    expect(version != old_version, f"apt upgrades {old_version} to {version} in {seconds:.0f} s")
    expect(main_pid() not in ("0", old_pid), "the server was restarted")
    still_running(sandboxes, old_agents, old_sessions, old_lines)


def failed_server(sandboxes) -> None:
    """Kill the server; systemd starts the next one."""
    old_pid = main_pid()
    old_agents = agents()
    old_sessions = [one.session() for one in sandboxes]
    old_lines = [one.lines() for one in sandboxes]
    run("systemctl", "kill", "--kill-whom=main", "--signal=KILL", "isolet")
    started = time.monotonic()
    wait_until("systemd has started another server", lambda: main_pid() not in ("0", old_pid))
    wait_until("it answers", answers)
    say(f"  a killed server is replaced after {time.monotonic() - started:.0f} s")
    still_running(sandboxes, old_agents, old_sessions, old_lines)


def still_running(sandboxes, old_agents, old_sessions, old_lines) -> None:
    """No agent and no shell was restarted, and every counter goes on."""
    now = agents()
    kept = {name: agent for name, agent in old_agents.items() if now.get(name) == agent}
    expect(len(kept) >= len(sandboxes), f"{len(kept)} agents are the processes of before")
    expect(
        [one.session() for one in sandboxes] == old_sessions, "sessions have their shells, variables and directories"
    )
    wait_until(
        "every client receives new lines",
        lambda: all(one.lines() > lines for one, lines in zip(sandboxes, old_lines, strict=True)),
    )
    expect(True, "every client receives new lines")
