"""Copies an archive of an image with sessions, and replaces OLD by NEW in them. Usage:
change_sessions.py FROM TO OLD NEW valid|stale|missing|padded

valid: the digest is that of the new content; stale: that of the old; missing: without the content;
padded: valid, with spaces up to more than an image may have."""

import hashlib
import io
import json
import sys
import tarfile

source, target, old, new, kind = sys.argv[1:]
archive = tarfile.open(source)
annotation = "io.isolet.sessions"
index = json.load(archive.extractfile("index.json"))
[entry] = index["manifests"]
before = entry["annotations"][annotation].removeprefix("sha256:")
content = archive.extractfile(f"blobs/sha256/{before}").read()
assert old.encode() in content, content[:200]
content = content.replace(old.encode(), new.encode(), 1)
if kind == "padded":
    content += b" " * 4 * 1024 * 1024
after = before if kind == "stale" else hashlib.sha256(content).hexdigest()
entry["annotations"][annotation] = f"sha256:{after}"
replaced = {"index.json": ("index.json", json.dumps(index).encode())}
replaced[f"blobs/sha256/{before}"] = (f"blobs/sha256/{after}", content)
with tarfile.open(target, "w") as changed:
    for member in archive.getmembers():
        if kind == "missing" and member.name == f"blobs/sha256/{before}":
            continue
        data = archive.extractfile(member)
        if member.name in replaced:
            member.name, text = replaced[member.name]
            member.size, data = len(text), io.BytesIO(text)
        changed.addfile(member, data)
