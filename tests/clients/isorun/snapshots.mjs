// Snapshots, restores and forks: files and the state of shells, not processes.
import assert from 'node:assert/strict'
import { Isorun } from 'isorun'

const isorun = new Isorun()
const sandbox = await isorun.create()
await sandbox.writeFile('/app/state.txt', 'before')
await sandbox.exec('echo own >/usr/local/own')

const snapshot = await sandbox.snapshot()
await sandbox.writeFile('/app/state.txt', 'after')
const [listed] = await isorun.listSnapshots()
for (const one of [snapshot, listed]) {
  assert.equal(one.runId, sandbox.id, JSON.stringify(one))
  assert.ok(one.sizeBytes > 0, JSON.stringify(one))
  assert.ok(Math.abs(Date.parse(one.createdAt) - Date.now()) < 60_000, JSON.stringify(one))
}

const restored = await isorun.restore(listed.id)
assert.notEqual(restored.id, sandbox.id)
const bytes = await restored.readFile('/app/state.txt')
assert.equal(Buffer.from(bytes).toString(), 'before')
assert.equal((await restored.exec('cat /usr/local/own')).stdout, 'own\n')

const forks = await sandbox.fork(3)
assert.equal(new Set([sandbox.id, ...forks.map((fork) => fork.id)]).size, 4)
for (const fork of forks) {
  assert.equal(Buffer.from(await fork.readFile('/app/state.txt')).toString(), 'after')
}
await isorun.deleteSnapshot(listed.id)
assert.deepEqual(await isorun.listSnapshots(), [])
for (const one of [sandbox, restored, ...forks]) await one.destroy()
assert.deepEqual(await isorun.list(), [])
console.log('all copied')
