// Builds templates with the methods of E2B's public JavaScript client.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { BuildError, Sandbox, Template, waitForPort } from 'e2b'

const home = fs.mkdtempSync(path.join(os.tmpdir(), 'e2b-templates-'))
fs.mkdirSync(path.join(home, 'src'))
fs.writeFileSync(path.join(home, 'src/a.txt'), 'a\n')
fs.writeFileSync(path.join(home, 'one.sh'), 'echo one\n')

function whole() {
  return Template({ fileContextPath: home })
    .fromBaseImage()
    .copy('src/*', 'flat/')
    .copyItems([{ src: 'one.sh', dest: '/opt/bin/one', mode: 0o755 }])
    .makeDir('/opt/made')
    .makeSymlink('/opt/bin/one', '/opt/two')
    .rename('/opt/made', '/opt/kept')
    .setEnvs({ GREETING: 'hello' })
    .setWorkdir('/srv/app')
    .runCmd(['pwd > where', '/opt/two > said'], { user: 'root' })
    .remove('/opt/kept', { recursive: true })
    .setStartCmd('python3 -m http.server 8124 --bind 127.0.0.1', waitForPort(8124))
}

async function build(template, name, options = {}) {
  const lines = []
  const info = await Template.build(template, name, {
    onBuildLogs: (entry) => lines.push(entry.message),
    ...options,
  })
  return { info, lines }
}

async function everyMethod() {
  const { info, lines } = await build(whole(), 'js-whole:v1')
  assert.equal(info.templateId, 'js-whole')
  assert(lines.some((line) => line.includes('WORKDIR /srv/app')), lines.join('\n'))
  const sandbox = await Sandbox.create('js-whole:v1')
  const said = await sandbox.commands.run('cat where said /home/user/flat/a.txt; echo $GREETING; ls /opt; pwd')
  assert.equal(said.stdout, '/srv/app\none\na\nhello\nbin\ntwo\n/srv/app\n')
  const port = await sandbox.commands.run('curl -s -o /dev/null -w "%{http_code}" http://127.0.0.1:8124/')
  assert.equal(port.stdout, '200')
  await sandbox.kill()
}

async function cacheAndTags() {
  const { lines } = await build(whole(), 'js-whole:v2')
  assert.equal(lines.filter((line) => line.startsWith('CACHED')).length, 9, lines.join('\n'))
  assert(await Template.exists('js-whole'))
  assert.equal(await Template.exists('js-unknown'), false)
  const assigned = await Template.assignTags('js-whole:v1', 'stable')
  assert.deepEqual(assigned.tags, ['stable'])
  const tags = await Template.getTags('js-whole')
  assert.deepEqual(tags.map((one) => one.tag), ['stable', 'v1', 'v2'])
  await Template.removeTags('js-whole', ['stable'])
  await assert.rejects(Template.removeTags('js-whole', 'stable'))
}

async function failures() {
  const failing = Template().fromBaseImage().runCmd('echo why >&2; exit 3')
  await assert.rejects(build(failing, 'js-bad'), (error) => {
    return error instanceof BuildError && /exit status 3[^]*why/.test(error.message)
  })
  const text = 'FROM e2bdev/base\nWORKDIR /app\nCOPY one.sh .\nRUN sh one.sh > said\n'
  await build(Template({ fileContextPath: home }).fromDockerfile(text), 'js-dockerfile')
  const sandbox = await Sandbox.create('js-dockerfile')
  assert.equal((await sandbox.commands.run('cat /app/said; pwd')).stdout, 'one\n/app\n')
  await sandbox.kill()
  const slow = Template().fromBaseImage().skipCache().runCmd('sleep 3')
  const info = await Template.buildInBackground(slow, 'js-slow')
  assert.equal((await Template.getBuildStatus(info)).status, 'building')
}

try {
  await everyMethod()
  await cacheAndTags()
  await failures()
} finally {
  fs.rmSync(home, { recursive: true })
}
console.log('all built')
