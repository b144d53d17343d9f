// Every call of the client that a run answers.
import assert from 'node:assert/strict'
import { Isorun, IsorunError } from 'isorun'

const isorun = new Isorun()
const sandbox = await isorun.create({ image: 'node:22-slim', vcpus: 0.5, memMiB: 256, timeoutSec: 600 })

// A run is created, found and listed.
assert.match(sandbox.id, /^[A-Za-z0-9][A-Za-z0-9._-]*$/)
assert.deepEqual([sandbox.image, sandbox.vcpus, sandbox.memMiB], ['node:22-slim', 0.5, 256])
assert.ok(sandbox.createMs > 0)
const info = await sandbox.info()
assert.deepEqual([info.id, info.status, info.image], [sandbox.id, 'running', 'node:22-slim'])
assert.ok(Math.abs(Date.parse(info.createdAt) - Date.now()) < 60_000, info.createdAt)
const other = await isorun.create()
const ids = (await isorun.list()).map((run) => run.id).sort()
assert.deepEqual(ids, [sandbox.id, other.id].sort())
await other.destroy()
assert.equal((await isorun.get(sandbox.id)).id, sandbox.id)

// Credentials by host name, and by host name and header: their values are not inside.
const credentials = { 'api.example.com': 'Bearer of-isorun', 'other.example.com:X-Key': 'of-isorun' }
const confined = await isorun.create({ credentials, networkProfile: 'none' })
assert.equal((await confined.exec('env; cat /proc/*/environ | tr "\\0" "\\n"')).stdout.includes('of-isorun'), false)
const answer = await fetch(`${isorun.apiUrl}/v1/sandboxes/${confined.id}/network`, {
  headers: { authorization: `Bearer ${isorun.apiKey}` },
})
assert.deepEqual((await answer.json()).credentials, [
  { host: 'api.example.com', header: 'authorization', allowed: false },
  { host: 'other.example.com', header: 'x-key', allowed: false },
])
await confined.destroy()

// Exec: both streams, the exit code, no state between two calls; a failing command is not an error.
const both = await sandbox.exec('echo out; echo err >&2; cd /; X=1; exit 3')
assert.deepEqual(both, { exitCode: 3, stdout: 'out\n', stderr: 'err\n' })
assert.equal((await sandbox.exec('echo "[$X]"; pwd')).stdout, '[]\n/workspace\n')
assert.equal((await sandbox.exec('no-such-program')).exitCode, 127)
assert.equal((await sandbox.exec('kill -9 $$')).exitCode, 137)
const many = await Promise.all([...Array(16).keys()].map((n) => sandbox.exec(`echo ${n}`)))
assert.deepEqual(many.map((one) => one.stdout), [...Array(16).keys()].map((n) => `${n}\n`))

// A timeout ends the command with everything that it started, and the run continues.
const begun = performance.now()
const late = await sandbox.exec('echo first; sleep 4246 & sleep 4246', 1)
assert.ok(performance.now() - begun < 60_000)
assert.deepEqual([late.exitCode !== 0, late.stdout], [true, 'first\n'])
assert.equal((await sandbox.exec('pgrep -c sleep')).stdout, '0\n')

// A hibernated run keeps its processes, and refuses commands until it is resumed.
await sandbox.exec('sleep 4247 >/dev/null 2>&1 &')
await sandbox.hibernate()
assert.equal((await sandbox.info()).status, 'hibernated')
await assert.rejects(sandbox.exec('true'), (e) => e instanceof IsorunError && e.status === 409)
await sandbox.resume()
assert.equal((await sandbox.info()).status, 'running')
assert.equal((await sandbox.exec('pgrep -c -x sleep; pkill -x sleep')).stdout, '1\n')

// Files: parent directories are created, an existing file is replaced, bytes are preserved.
await sandbox.writeFile('/app/config.json', JSON.stringify({ env: 'prod' }))
assert.equal(await sandbox.readFile('/app/config.json'), '{"env":"prod"}')
await sandbox.writeFile('/app/config.json', 'short')
assert.equal(await sandbox.readFile('/app/config.json'), 'short')
await sandbox.writeFile('/app/a b+ü&c?.txt', '')
assert.equal(await sandbox.readFile('/app/a b+ü&c?.txt'), '')
const bytes = Uint8Array.from({ length: 3 << 20 }, (_, n) => (n * 31) & 255)
await sandbox.writeFile('/app/bytes', bytes)
const { createHash } = await import('node:crypto')
const sum = createHash('sha256').update(bytes).digest('hex')
assert.equal((await sandbox.exec('sha256sum < /app/bytes')).stdout, `${sum}  -\n`)
await sandbox.writeFile('relative.txt', 'r')
assert.equal((await sandbox.exec('cat /workspace/relative.txt')).stdout, 'r')
const names = (await sandbox.readdir('/app')).map((entry) => entry.name).sort()
assert.deepEqual(names, ['a b+ü&c?.txt', 'bytes', 'config.json'])

// The timer: seconds from now, 0 for none.
await sandbox.setTimeout(60)
await sandbox.setTimeout(0)
assert.equal((await sandbox.info()).status, 'running')

// The audit log: each entry's signature includes that of the previous one.
const audit = await sandbox.auditLog()
assert.equal(audit[0].event, 'sandbox.created')
for (const event of ['sandbox.create', 'exec.start', 'file.write', 'sandbox.change']) {
  assert.ok(audit.some((entry) => entry.event === event), event)
}
for (const entry of audit) {
  assert.deepEqual([entry.sandboxId, entry.hmac.length], [sandbox.id, 64])
  assert.ok(Math.abs(Date.parse(entry.timestamp) - Date.now()) < 60_000, entry.timestamp)
}
assert.ok(audit.every((entry, n) => n === 0 || entry.seq > audit[n - 1].seq))
assert.equal(audit.find((entry) => entry.event === 'file.write').data.path, '/app/config.json')

// After its deletion the run reports its usage once, and is then unknown.
const ended = await sandbox.destroy()
assert.equal(ended.status, 'destroyed')
assert.ok(ended.uptimeMs > 0 && ended.cpuMs > 0 && ended.costCents === 0, JSON.stringify(ended))
assert.ok(ended.memPeakBytes > 0, JSON.stringify(ended))
assert.equal(await isorun.get(sandbox.id), null)
await assert.rejects(sandbox.exec('true'), (e) => e instanceof IsorunError && e.status === 404)
await assert.rejects(sandbox.destroy(), (e) => e.status === 404)
assert.deepEqual(await isorun.list(), [])
assert.ok((await sandbox.auditLog()).some((entry) => entry.event === 'sandbox.destroy'))

// The usage of deleted runs remains: individually and as sums.
const [last, between, first] = await isorun.history()
assert.deepEqual([last.id, between.id, first.id], [sandbox.id, confined.id, other.id])
assert.deepEqual([last.image, last.vcpus, last.memMiB, last.costCents], ['node:22-slim', 0.5, 256, 0])
assert.deepEqual([last.cpuMs, last.memPeakBytes], [ended.cpuMs, ended.memPeakBytes])
const lived = Date.parse(last.destroyedAt) - Date.parse(last.createdAt)
assert.ok(Math.abs(lived - last.uptimeMs) < 1000, JSON.stringify(last))
const usage = await isorun.usage()
assert.deepEqual([usage.activeSandboxes, usage.historySandboxes, usage.totalCostCents], [0, 3, 0])
assert.ok(Math.abs(usage.cpuSeconds - (last.cpuMs + between.cpuMs + first.cpuMs) / 1000) < 0.001, JSON.stringify(usage))
assert.ok(usage.memSeconds > (256 * ended.uptimeMs) / 1000 * 0.9, JSON.stringify(usage))
assert.ok(Math.abs(Date.parse(usage.asOf) - Date.now()) < 60_000)

// A run ends when its time is over.
const brief = await isorun.create({ timeoutSec: 1 })
while (await isorun.get(brief.id)) await new Promise((again) => setTimeout(again, 20))
console.log('all answered')
