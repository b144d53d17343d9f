// The package's own MCP server, used by the official MCP client over standard input and output.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'

const { ISORUN_API_URL, ISORUN_API_KEY } = process.env
const program = join(import.meta.dirname, 'node_modules/isorun/dist/mcp-cli.js')
const env = { ISORUN_API_URL, ISORUN_API_KEY }
const client = new Client({ name: 'test', version: '1.0.0' })
await client.connect(new StdioClientTransport({ command: process.execPath, args: [program], env }))

/** What a tool says, and whether it says that it failed. */
async function call(name, args = {}) {
  const result = await client.callTool({ name, arguments: args })
  return [result.content.map((block) => block.text).join('\n'), result.isError === true]
}
async function said(name, args) {
  const [text, failed] = await call(name, args)
  assert.equal(failed, false, text)
  return text
}

const { tools } = await client.listTools()
const names = tools.map((tool) => tool.name).sort()
assert.deepEqual(names, ['checkpoint', 'create_sandbox', 'destroy_sandbox', 'exec', 'hibernate',
  'list_sandboxes', 'restore', 'resume', 'url'])

assert.equal(await said('list_sandboxes'), '(none)')
const sandboxId = await said('create_sandbox', { memMiB: 256, timeoutSec: 600 })
assert.equal(await said('list_sandboxes'), sandboxId)
const ran = await said('exec', { sandboxId, command: 'echo out; echo err >&2; exit 3' })
assert.equal(ran, 'out\nSTDERR:\nerr\n[exit code: 3]')

// The address that the tool returns leads to a program that listens there.
await said('exec', { sandboxId, command: 'echo hello > f; python3 -m http.server 8000 >/dev/null 2>&1 &' })
const url = await said('url', { sandboxId, port: 8000, path: '/f' })
const authorization = `Bearer ${ISORUN_API_KEY}`
const ready = async () => {
  const answer = await fetch(url, { headers: { authorization } })
  return answer.status === 200 ? await answer.text() : null
}
let page
while ((page = await ready()) === null) await new Promise((again) => setTimeout(again, 20))
assert.equal(page, 'hello\n')

// A hibernated run keeps its processes, and no command runs in it.
await said('exec', { sandboxId, command: 'sleep 4713 >/dev/null 2>&1 &' })
await said('hibernate', { sandboxId })
const [refusal, refused] = await call('exec', { sandboxId, command: 'true' })
assert.ok(refused && /409.*sandbox_paused/.test(refusal), refusal)
await said('resume', { sandboxId })
assert.equal(await said('exec', { sandboxId, command: 'pgrep -c -x sleep' }), '1')

// A checkpoint is a snapshot, and an unknown one is reported to the agent.
assert.match(await said('checkpoint', { sandboxId }), /snap_/)
const [text, failed] = await call('restore', { snapshotId: 'snap_1' })
assert.ok(failed && /404.*no snapshot snap_1/.test(text), text)
assert.equal((await call('exec', { sandboxId: 'never-was', command: 'true' }))[1], true)

const ended = JSON.parse(await said('destroy_sandbox', { sandboxId }))
assert.ok(ended.status === 'destroyed' && ended.cpuMs > 0, JSON.stringify(ended))
assert.equal(await said('list_sandboxes'), '(none)')
await client.close()
console.log('all answered')
