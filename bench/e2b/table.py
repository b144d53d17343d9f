#!/usr/bin/env python3
"""Print the times of E2B's client against those of this project's own, on one server.

The rows alternate in each round, so that noise affects all of them. Read ratios, not milliseconds.
"""

import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/compat"), str(ROOT / "sdk/python/src")]

from server import Server

ROUNDS = int(os.environ.get("ROUNDS", "20"))
# Commands of one row before the next row follows.
BURST = 10
# What E2B's daemon starts for a command.
LOGIN_BASH = ["/bin/bash", "-l", "-c", "true"]


def measure(url, e2b_key, own_key):
    os.environ.update(E2B_API_URL=url, E2B_SANDBOX_URL=url, E2B_API_KEY=e2b_key)
    import e2b
    import isolet

    times = {}

    def row(name, call, *args):
        begun = time.perf_counter()
        value = call(*args)
        times.setdefault(name, []).append((time.perf_counter() - begun) * 1000)
        return value

    with isolet.Isolet(url, own_key) as client:
        # Connections are open and the warm pool is full.
        e2b.Sandbox.create().kill()
        client.create_sandbox().delete()
        for _ in range(ROUNDS):
            theirs = row("create, E2B's client", e2b.Sandbox.create)
            ours = row("create, own SDK", client.create_sandbox)
            rows = [
                ('commands.run("true"), E2B\'s client', theirs.commands.run, "true"),
                ('run_program of the same, own SDK', ours.run_program, LOGIN_BASH),
                ('exec("true") in a shell, own SDK', ours.exec, "true"),
            ]
            for name, call, command in rows:
                call(command)
                for _ in range(BURST):
                    row(name, call, command)
            theirs.kill()
            ours.delete()
    return times


def main():
    with Server(ROOT, with_template=False) as server:
        own_key = server.isolet("keys", "add", "--label", "bench").strip()
        times = measure(f"http://127.0.0.1:{server.port}", server.key, own_key)
    print(f"load {os.getloadavg()[0]:.2f}")
    print("{:<48} {:>10} {:>10} {:>6}".format("", "median", "p95", "n"))
    for name, all in times.items():
        p95 = statistics.quantiles(all, n=20)[-1]
        print(f"{name:<48} {statistics.median(all):>7.2f} ms {p95:>7.2f} ms {len(all):>6}")


main()
