// Refused calls: the client shows the first 200 characters of the body, which include the reason.
import assert from 'node:assert/strict'
import { Isorun, IsorunError } from 'isorun'

const isorun = new Isorun()
const sandbox = await isorun.create()

/** The call fails with this status and a message in which a person reads why. */
async function refused(status, why, call) {
  await assert.rejects(call, (e) => {
    assert.ok(e instanceof IsorunError, String(e))
    assert.equal(e.status, status, e.message)
    assert.match(e.message, why)
    return true
  })
}

// Reported as such.
const port = await fetch(sandbox.url(3000), { headers: { Authorization: `Bearer ${isorun.apiKey}` } })
assert.equal(port.status, 502)
assert.match(await port.text(), /not_listening/)

// Requested but not supported: never ignored.
await refused(400, /network/, () => isorun.create({ network: { allow: ['http://example.com'] } }))
await refused(400, /no network profile open/, () => isorun.create({ networkProfile: 'open' }))
const headers = { authorization: `Bearer ${isorun.apiKey}`, 'content-type': 'application/json' }
const rules = JSON.stringify({ description: 'Registries.', allow: ['*.npmjs.org:443'], deny: ['*'] })
const kept = await fetch(`${isorun.apiUrl}/v1/network-profiles/registries`, { method: 'PUT', headers, body: rules })
assert.equal(kept.status, 201)
const profiles = await isorun.networkProfiles()
assert.deepEqual(profiles.map((one) => one.name), ['none', 'locked-down', 'packages', 'unrestricted', 'registries'])
assert.deepEqual(profiles[4], { name: 'registries', ...JSON.parse(rules) })
await (await isorun.create({ networkProfile: 'none' })).destroy()
await refused(400, /disk_mib/, () => isorun.create({ diskMiB: 1 }))
await refused(400, /credentials/, () => isorun.create({ credentials: { A: 'b' } }))
await refused(400, /No-Such-Image/, () => isorun.create({ image: 'No-Such-Image:1' }))
await refused(400, /timeout/, () => isorun.create({ timeoutSec: -1 }))
await refused(400, /vcpus/, () => isorun.create({ vcpus: 0 }))

// Invalid calls.
assert.equal(await isorun.get('never-was'), null)
await refused(404, /no snapshot snap_1/, () => isorun.restore('snap_1'))
await refused(404, /no snapshot snap_1/, () => isorun.deleteSnapshot('snap_1'))
await refused(400, /count/, () => sandbox.fork(101))
await refused(404, /[Nn]o such file/, () => sandbox.readFile('/no-such-file'))
await refused(404, /[Nn]o such file/, () => sandbox.readdir('/no-such-folder'))
await refused(400, /./, () => sandbox.exec('echo \0'))
await refused(400, /path/, () => sandbox.writeFile('', 'x'))
await refused(401, /key/, () => new Isorun({ apiKey: 'wrong' }).list())
await sandbox.destroy()
console.log('all refused')
