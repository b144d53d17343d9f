// A client of the official SDK, connected to Isolet's tools over standard input and output of
// `isolet mcp`, or over streamable HTTP.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

export const { ISOLET_URL: url, ISOLET_API_KEY: key, ISOLET_PROGRAM: program, WAY: way } = process.env;

function transport() {
  if (way === "stdio") {
    const env = { ISOLET_URL: url, ISOLET_API_KEY: key };
    return new StdioClientTransport({ command: program, args: ["mcp", "--sandbox", "tools"], env });
  }
  const requestInit = { headers: { authorization: `Bearer ${key}` } };
  return new StreamableHTTPClientTransport(new URL(`${url}/mcp?sandbox=tools`), { requestInit });
}

export async function connected() {
  const client = new Client({ name: "test", version: "1.0.0" });
  await client.connect(transport());
  return client;
}

export async function gone(client) {
  await client.transport.terminateSession?.();
  await client.close();
}

export async function call(client, name, args = {}, options) {
  const result = await client.callTool({ name, arguments: args }, undefined, options);
  const text = result.content.map((block) => block.text ?? "").join("\n");
  return { text, data: result.structuredContent, failed: result.isError === true, blocks: result.content };
}
