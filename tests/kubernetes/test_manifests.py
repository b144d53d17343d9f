"""The manifests are valid, name each other correctly, and the server accepts their configuration."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from configuration import effective, template, written
from manifests import FOLDER, NEWEST, OLDEST, check, objects, pod, server

NAME = "isolet"
LABELS = {"app.kubernetes.io/name": "isolet"}


def port_of(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


def mounted() -> dict[str, dict[str, Any]]:
    """The volume at each path of the server's container."""
    volumes = {volume["name"]: volume for volume in pod()["volumes"]}
    return {mount["mountPath"]: volumes[mount["name"]] for mount in server()["volumeMounts"]}


def texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for part in value.values() for text in texts(part)]
    if isinstance(value, list):
        return [text for part in value for text in texts(part)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("name", objects())
def test_a_manifest_has_the_schema_of_kubernetes(name: str, version: str) -> None:
    check(objects()[name], version)


def test_a_misspelled_field_is_refused() -> None:
    wrong = copy.deepcopy(objects()["daemon-set"])
    wrong["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        check(wrong, NEWEST)
    untyped = copy.deepcopy(objects()["disruption-budget"])
    untyped["spec"]["minAvailable"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        check(untyped, OLDEST)


def test_all_objects_are_in_the_namespace_which_allows_privileged_pods() -> None:
    namespace = objects()["namespace"]["metadata"]
    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    for name, manifest in objects().items():
        if name != "namespace":
            assert manifest["metadata"]["namespace"] == namespace["name"], name


def test_selectors_find_the_pods() -> None:
    spec = objects()["daemon-set"]["spec"]
    assert spec["template"]["metadata"]["labels"] == LABELS
    assert spec["selector"]["matchLabels"] == LABELS
    assert objects()["service"]["spec"]["selector"] == LABELS
    assert objects()["disruption-budget"]["spec"]["selector"]["matchLabels"] == LABELS
    assert objects()["network-policy"]["spec"]["podSelector"]["matchLabels"] == LABELS


def test_ports_are_those_of_the_configuration() -> None:
    config = template()
    clients, peers = port_of(config["listen"]), port_of(config["cluster"]["advertise"])
    assert {port["name"]: port["containerPort"] for port in server()["ports"]} == {"https": clients, "peers": peers}
    (port,) = objects()["service"]["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (clients, "https")
    policy = objects()["network-policy"]["spec"]
    allowed = [{port["port"] for port in rule["ports"]} for rule in policy["ingress"]]
    assert allowed == [{clients}, {peers}]
    for probe in ("startupProbe", "readinessProbe"):
        assert server()[probe]["httpGet"]["port"] == "https"


def test_the_nodes_reach_etcd_and_each_other() -> None:
    egress = objects()["network-policy"]["spec"]["egress"]
    assert egress[0]["to"] == [{"podSelector": {"matchLabels": LABELS}}]
    assert [port["port"] for port in egress[0]["ports"]] == [port_of(template()["cluster"]["advertise"])]
    blocks = {block["ipBlock"]["cidr"].removesuffix("/32") for block in egress[1]["to"]}
    ports = {port["port"] for port in egress[1]["ports"]}
    named = [re.fullmatch(r"https://(.+):(\d+)", url) for url in template()["cluster"]["etcd"]]
    assert {(url[1], int(url[2])) for url in named if url} == {(block, port) for block in blocks for port in ports}


def test_the_names_of_the_service_are_accepted() -> None:
    service = objects()["service"]["metadata"]
    assert f"{service['name']}.{service['namespace']}.svc" in template()["hosts"]


def test_every_file_of_the_configuration_is_mounted() -> None:
    commands = (FOLDER / "README.md").read_text()
    for path in (text for text in texts(template()) if text.startswith("/")):
        folder = Path(path) if path == template()["cluster"]["peer_dir"] else Path(path).parent
        volume = mounted()[str(folder)]
        if "secret" in volume:
            secret = volume["secret"]
            # Private keys that others may read are refused.
            assert secret["defaultMode"] == 0o400
            (command,) = re.findall(rf"kubectl .*create secret \S+ {secret['secretName']} [^\n]*", commands)
            created = Path(path).name
            assert f"--from-file={created}" in command or (created.startswith("tls.") and "secret tls" in command)
        else:
            assert volume["hostPath"]["path"] == str(folder)
    key = next(entry for entry in server()["env"] if entry["name"] == "ISOLET_API_KEY")["valueFrom"]["secretKeyRef"]
    assert f"create secret generic {key['name']} --from-file={key['key']}=" in commands


def test_the_server_has_what_it_needs_from_the_machine() -> None:
    assert server()["securityContext"]["privileged"] is True
    assert mounted()["/var/lib/isolet"]["hostPath"]["path"] == "/var/lib/isolet"
    assert mounted()["/sys/fs/cgroup"]["hostPath"]["path"] == "/sys/fs/cgroup"
    # Variables that Kubernetes would set for the service named isolet are settings of the server.
    assert pod()["enableServiceLinks"] is False
    assert pod()["automountServiceAccountToken"] is False
    assert "livenessProbe" not in server()
    assert pod()["initContainers"][0]["image"] == server()["image"]


@pytest.mark.parametrize(
    ("machine", "address", "node", "advertise"),
    [
        ("worker-1", "10.244.1.7", "worker-1", "10.244.1.7:7301"),
        ("ip-10-0-0-5.eu-central-1.compute.internal", "10.244.1.7", "ip-10-0-0-5", "10.244.1.7:7301"),
        ("worker-1", "fd00:10:244::7", "worker-1", "[fd00:10:244::7]:7301"),
    ],
)
def test_the_server_accepts_the_configuration(
    machine: str, address: str, node: str, advertise: str, tmp_path: Path
) -> None:
    settings = effective(written(machine, address, tmp_path))
    assert (settings["cluster"]["node"], settings["cluster"]["advertise"]) == (node, advertise)
    expected = template()
    for name in ("etcd", "etcd_ca_file", "etcd_cert_file", "etcd_key_file", "peer_dir", "region"):
        assert settings["cluster"][name] == expected["cluster"][name], name
    assert settings["store"]["url"] == expected["store"]["url"]
    assert settings["network"]["range"] == expected["network"]["range"]
    assert settings["listen"] == expected["listen"]


def test_a_machine_whose_name_is_no_label_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="node"):
        effective(written("Worker_1", "10.244.1.7", tmp_path))
