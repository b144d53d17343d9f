"""A real Prometheus reads a real server under load, and every query of the dashboard and of the alerts has data."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

import httpx
import pytest
from load import IDS, SESSION, Load
from prometheus import PROGRAMS, ROOT, Prometheus, wait_until
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from server import KEY

PACKAGING = ROOT / "packaging"
DASHBOARD = json.loads((PACKAGING / "grafana/isolet.json").read_text())
CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PREFER = {"accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}

#: Queries on these metrics may be zero for all series in this test, and why.
ZERO = {
    "isolet_agents_lost_total": "no agent ends",
    "isolet_create_failures_total": "every create succeeds",
    "isolet_wake_failures_total": "every wake succeeds",
    "isolet_sleep_failures_total": "every sleep succeeds",
    "isolet_sandboxes": 'none is "failed" or "unreachable"',
    "isolet_fleet_nodes": "no node is lost",
    "isolet_queue_depth": "the queues are empty within milliseconds",
    "isolet_refused_requests_total": "the alert on full servers looks at two reasons alone",
    "isolet_http_responses_total": "no request fails by a fault of the server",
}


def promtool(*arguments: str, text: str | None = None) -> None:
    done = subprocess.run([PROGRAMS / "promtool", *arguments], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def queries() -> Iterator[tuple[str, str]]:
    """Every query of the dashboard and of the alerts, by its title."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", "1m")
            query = query.replace("$instance", ".*").replace("$job", "isolet")
            yield f"{panel['title']} {target['refId']}", query
    rules = (PACKAGING / "prometheus/alerts.yml").read_text()
    for name, expression in re.findall(r"- alert: (\w+)\n +expr: (.+)\n", rules):
        query, _, threshold = re.split(r" ([<>]) (?=[0-9.]+$)", expression)
        assert float(threshold) >= 0
        yield name, query


def read(load: Load, key: str = KEY) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}", **PREFER}
    return httpx.get(f"{load.server.url}/metrics", headers=headers, trust_env=False)


def key(load: Load, *arguments: str) -> str:
    """A new key of the server."""
    program = load.server.program
    command = [program, "keys", "--data-dir", load.server.data, "add", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def plain(text: str) -> str:
    """The same metrics in the older text format, where a counter's comments have its full name."""
    counters = set(re.findall(r"^# TYPE (\S+) counter$", text, re.M))
    lines = []
    for line in text.splitlines():
        words = line.split(" ", 3)
        if line.startswith(("# UNIT", "# EOF")):
            continue
        if line.startswith("# ") and words[2] in counters:
            line = line.replace(words[2], f"{words[2]}_total", 1)
        lines.append(line)
    return "\n".join(lines) + "\n"


def test_promtool_accepts_the_rules_their_tests_and_the_example() -> None:
    promtool("check", "rules", str(PACKAGING / "prometheus/alerts.yml"))
    promtool("check", "config", str(PACKAGING / "prometheus/prometheus.yml"))
    promtool("test", "rules", str(ROOT / "tests/metrics/alerts_test.yml"))


# Promises: MT3.
def test_mt3_every_query_of_the_dashboard_and_the_alerts_has_data(load: Load, prometheus: Prometheus) -> None:
    load.round()
    # Series that begin with the first round must be read before the second, or nothing shows that they grow.
    wait_until("the series of a tenant", lambda: any(prometheus.values("isolet_tenant_commands_total")))
    load.kill_launcher()
    load.delete()
    wait_until("a warm sandbox for one of the creates", lambda: prometheus.values("isolet_warm_pool_sandboxes") == [1.0])
    load.round()
    missing = dict(queries())
    assert len(missing) > 60

    def found() -> bool:
        for title, query in list(missing.items()):
            values = prometheus.values(query)
            allowed = any(re.search(rf"\b{name}\b", query) for name in ZERO)
            if values and (allowed or any(values)):
                del missing[title]
        return not missing

    try:
        with load.follow_events():
            wait_until("data", found)
    finally:
        assert not missing, "\n".join(f"{title}: {query}" for title, query in missing.items())
    groups = prometheus.get("/rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == 17
    assert {rule["health"] for rule in rules} == {"ok"}, rules
    firing = {rule["name"] for rule in rules if rule["state"] == "firing"}
    assert not firing, firing

    def is_up() -> bool:
        (target,) = prometheus.get("/targets")["activeTargets"]
        return bool(target["health"] == "up")

    # On a busy machine a scrape now and then takes longer than the second that it may.
    wait_until("a scrape that succeeds", is_up)


# Promises: MT1.
def test_mt1_the_reference_parser_and_promtool_accept_the_answer(load: Load) -> None:
    answer = read(load)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == CONTENT_TYPE
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert families["isolet_stream_bytes"].unit == "bytes"
    streams = {
        (one.labels["stream"], one.labels["direction"]): one.value for one in families["isolet_stream_bytes"].samples
    }
    assert streams["files", "in"] >= 200_000, streams
    assert all(streams.values()), streams

    def are_started_again() -> bool:
        families = {family.name: family for family in text_string_to_metric_families(read(load).text)}
        restarts = {one.labels["process"]: one.value for one in families["isolet_restarts"].samples}
        return bool(restarts["launcher"] >= 1 and restarts["veth"] >= 1)

    wait_until("the killed processes were started again", are_started_again)
    promtool("check", "metrics", text=plain(answer.text))


# Promises: MT2.
def test_mt2_only_the_operators_keys_read_metrics_which_name_no_sandbox(load: Load, metrics_address: str) -> None:

    def without_key() -> bool:
        return httpx.get(f"{load.server.url}/metrics", trust_env=False).status_code == 401

    # The wrong keys of the load still count for some seconds.
    wait_until("a refusal for lack of a key", without_key)
    assert read(load, key(load, "--tenant", "default", "--read-only")).status_code == 200
    refused = read(load, key(load, "--tenant", "acme"))
    assert (refused.status_code, refused.json()["error"]) == (403, "not_yours")
    assert "isolet_" not in refused.text
    own = httpx.get(f"http://{metrics_address}/metrics", trust_env=False)
    assert own.headers["content-type"] == CONTENT_TYPE
    for name in [*IDS, SESSION, KEY]:
        assert name not in own.text
    other = {"host": "attacker.example"}
    assert httpx.get(f"http://{metrics_address}/metrics", headers=other, trust_env=False).status_code == 421
    assert httpx.get(f"http://{metrics_address}/v1/sandboxes", trust_env=False).status_code == 404
    assert httpx.post(f"http://{metrics_address}/metrics", trust_env=False).status_code == 405


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_without_a_key_the_metrics_stay_on_loopback(load: Load, address: str) -> None:
    command = [load.server.program, "serve", "--metrics-listen", address, "--print-config"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "loopback" in done.stderr
