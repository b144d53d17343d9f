/** A registry with one small image, `tools:1`, whose layer it holds back while a test wants that. */

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";

const digestOf = (data: Buffer): string => `sha256:${createHash("sha256").update(data).digest("hex")}`;

/** A gzip-compressed layer with one file. */
function layer(): Buffer {
  const folder = mkdtempSync(join(tmpdir(), `isolet-layer-${process.pid}-`));
  mkdirSync(join(folder, "etc"));
  writeFileSync(join(folder, "etc/tools"), "hello\n");
  const packed = execFileSync("tar", ["-C", folder, "-cz", "."]);
  rmSync(folder, { recursive: true });
  return packed;
}

export class Registry {
  readonly #blobs = new Map<string, Buffer>();
  readonly #manifest: Buffer;
  #held: (() => void)[] | undefined;

  private constructor(private readonly server: Server) {
    const packed = layer();
    const arch = { x64: "amd64", arm64: "arm64" }[process.arch as string] ?? process.arch;
    const rootfs = { type: "layers", diff_ids: [digestOf(gunzipSync(packed))] };
    const config = Buffer.from(JSON.stringify({ architecture: arch, os: "linux", config: {}, rootfs }));
    const described = (mediaType: string, data: Buffer): Record<string, unknown> => {
      this.#blobs.set(digestOf(data), data);
      return { mediaType, digest: digestOf(data), size: data.length };
    };
    this.#manifest = Buffer.from(
      JSON.stringify({
        schemaVersion: 2,
        mediaType: "application/vnd.oci.image.manifest.v1+json",
        config: described("application/vnd.oci.image.config.v1+json", config),
        layers: [described("application/vnd.oci.image.layer.v1.tar+gzip", packed)],
      }),
    );
    server.on("request", (request, response) => {
      const manifest = /^\/v2\/tools\/manifests\/(1|sha256:[0-9a-f]+)$/.test(request.url ?? "");
      const blob = this.#blobs.get(/^\/v2\/tools\/blobs\/(.+)$/.exec(request.url ?? "")?.[1] ?? "");
      const body = request.url === "/v2/" ? Buffer.from("{}") : manifest ? this.#manifest : blob;
      if (!body) return void response.writeHead(404).end();
      const type = manifest ? "application/vnd.oci.image.manifest.v1+json" : "application/octet-stream";
      const answer = (): void => {
        response.writeHead(200, { "content-type": type, "content-length": body.length, "docker-content-digest": digestOf(body) });
        response.end(request.method === "HEAD" ? undefined : body);
      };
      if (blob && this.#held) this.#held.push(answer);
      else answer();
    });
  }

  static async start(): Promise<Registry> {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    return new Registry(server);
  }

  get host(): string {
    return `127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  /** Do not answer requests for blobs until the returned function is called. */
  hold(): () => void {
    this.#held = [];
    return () => {
      const held = this.#held ?? [];
      this.#held = undefined;
      held.forEach((answer) => answer());
    };
  }

  close(): void {
    this.server.closeAllConnections();
    this.server.close();
  }
}
