// Networks that the client requests are in force: by rules, by a profile, and by default.
import assert from 'node:assert/strict'
import { Isorun } from 'isorun'

const [one, other] = process.env.HOSTS.split(' ')
const isorun = new Isorun()

/** Which of the hosts' ports 80 and 443 a run reaches. */
async function reached(wish) {
  const run = await isorun.create(wish)
  const all = []
  for (const host of [one, other]) {
    for (const port of [80, 443]) {
      const { exitCode, stdout } = await run.exec(`timeout 5 bash -c 'cat </dev/tcp/${host}/${port}'`)
      if (exitCode === 0 && stdout.includes(host)) all.push(`${host}:${port}`)
    }
  }
  await run.destroy()
  return all
}

const every = [`${one}:80`, `${one}:443`, `${other}:80`, `${other}:443`]
assert.deepEqual(await reached({ network: { allow: [`${one}:80`], deny: ['*'] } }), [`${one}:80`])
assert.deepEqual(await reached({ network: { allow: [one], deny: [`${one}:80`] } }), [`${one}:443`])
assert.deepEqual(await reached({ network: { allow: ['*'], deny: [other] } }), every.slice(0, 2))
assert.deepEqual(await reached({ network: { allow: ['*'], deny: [] } }), every)
assert.deepEqual(await reached({ network: { allow: [], deny: [] } }), [])
const names = (await isorun.networkProfiles()).map((profile) => profile.name)
assert.ok(names.includes('web'), String(names))
assert.deepEqual(await reached({ networkProfile: 'web' }), [`${one}:80`, `${other}:80`])
assert.deepEqual(await reached({ networkProfile: 'unrestricted' }), every)
assert.deepEqual(await reached({ networkProfile: 'locked-down' }), [])
assert.deepEqual(await reached(), [])
console.log('all held')
