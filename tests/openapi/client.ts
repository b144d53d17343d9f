/** Creates, uses and deletes a sandbox with a client that is typed by the generated schema. */

import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

const { ISOLET_URL: baseUrl, ISOLET_API_KEY: key } = process.env;
assert(baseUrl && key, "set ISOLET_URL and ISOLET_API_KEY");
const client = createClient<paths, "application/json">({ baseUrl, headers: { authorization: `Bearer ${key}` } });
const id = `openapi-typescript-${process.pid}`;

const created = await client.POST("/v1/sandboxes", { body: { id, metadata: { by: "openapi-typescript" } } });
assert.equal(created.response.status, 201);
const sandbox: components["schemas"]["Sandbox"] = created.data!;
assert.equal(sandbox.id, id);
const state: string = sandbox.state;
assert.equal(state, "running");

const path = { id };
const ran = await client.POST("/v1/sandboxes/{id}/exec", {
  params: { path },
  body: { command: "echo out; echo err >&2; exit 3" },
});
// A field that every answer has needs no check.
const code: number = ran.data!.exit_code;
assert.deepEqual([code, ran.data!.stdout, ran.data!.stderr], [3, "out\n", "err\n"]);

const bytes = await client.PUT("/v1/sandboxes/{id}/files/{path}", {
  params: { path: { ...path, path: "a.bin" } },
  body: "bytes",
  bodySerializer: (body) => body,
  headers: { "content-type": "application/octet-stream" },
});
assert.equal(bytes.data?.size, 5);

const deleted = await client.DELETE("/v1/sandboxes/{id}", { params: { path } });
assert.equal(deleted.data?.state, "destroyed");

const gone = await client.GET("/v1/sandboxes/{id}", { params: { path } });
assert.equal(gone.data, undefined);
const error: components["schemas"]["Error"] = gone.error!;
assert.equal(error.error, "no_sandbox");
