"""Reads a tar archive with an OCI image layout, checks every digest and size, and prints as JSON the
configuration, the annotations and the names in each layer. Uses only the standard library."""

import gzip
import hashlib
import io
import json
import sys
import tarfile

archive = tarfile.open(sys.argv[1])
members = {member.name.removeprefix("./"): member for member in archive.getmembers()}


def read(name):
    return archive.extractfile(members[name]).read()


def blob(descriptor):
    algorithm, _, digest = descriptor["digest"].partition(":")
    assert algorithm == "sha256", descriptor
    data = read(f"blobs/sha256/{digest}")
    assert hashlib.sha256(data).hexdigest() == digest, descriptor
    assert len(data) == descriptor["size"], descriptor
    return data


assert json.loads(read("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
index = json.loads(read("index.json"))
assert index["schemaVersion"] == 2
[entry] = index["manifests"]
assert entry["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
manifest = json.loads(blob(entry))
assert manifest["schemaVersion"] == 2
assert manifest["config"]["mediaType"] == "application/vnd.oci.image.config.v1+json"
config = json.loads(blob(manifest["config"]))
assert config["rootfs"]["type"] == "layers"
assert len(config["rootfs"]["diff_ids"]) == len(manifest["layers"]) == len(config["history"])
layers = []
named = {entry["digest"], manifest["config"]["digest"]}
for descriptor, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"]):
    assert descriptor["mediaType"] == "application/vnd.oci.image.layer.v1.tar+gzip"
    plain = gzip.decompress(blob(descriptor))
    assert "sha256:" + hashlib.sha256(plain).hexdigest() == diff_id
    named.add(descriptor["digest"])
    layers.append(sorted(member.name for member in tarfile.open(fileobj=io.BytesIO(plain))))
if sessions := entry["annotations"].get("io.isolet.sessions"):
    named.add(sessions)
blobs = {"sha256:" + name.rpartition("/")[2] for name in members if members[name].isfile() and "/" in name}
assert blobs == named, "blobs that nothing names"
print(json.dumps({"config": config, "annotations": entry["annotations"], "layers": layers}))
