"""A registry with one small image, by plain HTTP on loopback."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def layer() -> tuple[bytes, bytes]:
    """A layer with one file: compressed, and as it is."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo("hello")
        entry.size = 5
        tar.addfile(entry, io.BytesIO(b"hello"))
    plain = archive.getvalue()
    return gzip.compress(plain, mtime=0), plain


class Registry:
    """Serves the image under every name and tag."""

    def __init__(self) -> None:
        packed, plain = layer()
        settings = {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [digest(plain)]},
        }
        config = json.dumps(settings).encode()
        part = {
            "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
            "digest": digest(packed),
            "size": len(packed),
        }
        head = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(config), "size": len(config)}
        manifest = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": head, "layers": [part]}).encode()
        blobs = {digest(one): one for one in (config, packed, manifest)}
        self.archive = self._archive(config, packed, manifest)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.rsplit("/", 1)[-1]
                found = manifest if "/manifests/" in self.path else blobs.get(name)
                self.send_response(200 if found is not None else 404)
                self.send_header("content-type", MANIFEST if found is manifest else "application/octet-stream")
                self.send_header("content-length", str(len(found or b"")))
                self.end_headers()
                self.wfile.write(found or b"")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @staticmethod
    def _archive(config: bytes, packed: bytes, manifest: bytes) -> bytes:
        """The image as an archive in the OCI layout."""
        index = {
            "schemaVersion": 2,
            "manifests": [{"mediaType": MANIFEST, "digest": digest(manifest), "size": len(manifest)}],
        }
        files = {"index.json": json.dumps(index).encode(), "oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}
        files |= {f"blobs/sha256/{digest(one)[7:]}": one for one in (config, packed, manifest)}
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        return archive.getvalue()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()
