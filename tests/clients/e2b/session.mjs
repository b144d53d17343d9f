// Makes the calls of E2B's public JavaScript client that this server answers, with its own methods.
import assert from 'node:assert/strict'
import {
  CommandExitError,
  FileNotFoundError,
  InvalidArgumentError,
  NotFoundError,
  Sandbox,
  TimeoutError,
} from 'e2b'

async function commands(sandbox) {
  const said = await sandbox.commands.run('echo out; echo err >&2; pwd; echo $A', { envs: { A: '1' } })
  assert.deepEqual([said.stdout, said.stderr, said.exitCode], ['out\n/home/user\n1\n', 'err\n', 0])
  await assert.rejects(sandbox.commands.run('exit 7'), (error) => {
    return error instanceof CommandExitError && error.exitCode === 7
  })
  assert.equal((await sandbox.commands.run('pwd', { user: 'root' })).stdout, '/root\n')
  let seen = ''
  await sandbox.commands.run('printf ü', { onStdout: (data) => { seen += data } })
  assert.equal(seen, 'ü')
  await assert.rejects(sandbox.commands.run('sleep 60', { timeoutMs: 500 }), TimeoutError)
  const cat = await sandbox.commands.run('cat', { background: true, stdin: true })
  assert((await sandbox.commands.list()).some((one) => one.pid === cat.pid))
  await sandbox.commands.sendStdin(cat.pid, 'one\n')
  await sandbox.commands.closeStdin(cat.pid)
  assert.equal((await cat.wait()).stdout, 'one\n')
  const sleep = await sandbox.commands.run('sleep 60', { background: true })
  const other = await sandbox.commands.connect(sleep.pid)
  assert(await sandbox.commands.kill(sleep.pid))
  await assert.rejects(sleep.wait(), CommandExitError)
  await assert.rejects(other.wait(), CommandExitError)
  assert.equal(await sandbox.commands.kill(999999), false)
  await assert.rejects(sandbox.commands.connect(999999), NotFoundError)
}

async function terminal(sandbox) {
  let shown = ''
  const onData = (data) => { shown += new TextDecoder().decode(data) }
  const pty = await sandbox.pty.create({ cols: 80, rows: 24, onData, envs: { B: '2' } })
  await sandbox.pty.resize(pty.pid, { cols: 100, rows: 30 })
  await sandbox.pty.sendInput(pty.pid, new TextEncoder().encode('stty size; echo b$B; exit\n'))
  await pty.wait()
  assert(shown.includes('30 100') && shown.includes('b2'), shown)
  const second = await sandbox.pty.create({ cols: 80, rows: 24, onData })
  assert(await sandbox.pty.kill(second.pid))
}

async function files(sandbox) {
  const data = new Uint8Array(1_280_000).map((_, at) => at % 256)
  const made = await sandbox.files.write('a b/ü.bin', data.buffer)
  assert.equal(made.path, '/home/user/a b/ü.bin')
  assert.deepEqual(await sandbox.files.read('a b/ü.bin', { format: 'bytes' }), data)
  await sandbox.files.write([{ path: 'd/one', data: '1' }, { path: 'd/two', data: '2' }])
  assert.equal(await sandbox.files.read('d/two'), '2')
  const names = (await sandbox.files.list('d')).map((one) => one.name)
  assert.deepEqual(names.sort(), ['one', 'two'])
  const info = await sandbox.files.getInfo('d/one')
  assert.deepEqual([info.type, Number(info.size), info.permissions], ['file', 1, '-rw-r--r--'])
  assert(await sandbox.files.makeDir('m'))
  assert.equal(await sandbox.files.makeDir('m'), false)
  assert.equal((await sandbox.files.rename('d/one', 'm/three')).path, '/home/user/m/three')
  assert.equal(await sandbox.files.exists('d/one'), false)
  let changed
  const change = new Promise((resolve) => { changed = resolve })
  const watch = await sandbox.files.watchDir('m', (event) => {
    if (event.type === 'write' && event.name === 'new') changed()
  })
  await sandbox.files.write('m/new', 'x')
  await change
  await watch.stop()
  await sandbox.files.remove('m')
  await assert.rejects(sandbox.files.read('nothing'), FileNotFoundError)
  await assert.rejects(sandbox.files.list('d/two'), InvalidArgumentError)
}

async function lifecycle(sandbox) {
  assert(await sandbox.isRunning())
  const info = await sandbox.getInfo()
  assert.deepEqual([info.sandboxId, info.state, info.metadata.kind], [sandbox.sandboxId, 'running', 'js'])
  await sandbox.setTimeout(3_000_000)
  assert((await sandbox.getMetrics())[0].memTotal > 0)
  assert((await sandbox.pause()) !== false)
  assert.equal(await sandbox.isRunning(), false)
  const back = await Sandbox.connect(sandbox.sandboxId)
  assert.equal((await back.commands.run('echo back')).stdout, 'back\n')
  const page = await Sandbox.list({ query: { metadata: { kind: 'js' } } }).nextItems()
  assert.deepEqual(page.map((one) => one.sandboxId), [sandbox.sandboxId])
}

const sandbox = await Sandbox.create({ metadata: { kind: 'js' }, timeoutMs: 600_000 })
await commands(sandbox)
await terminal(sandbox)
await files(sandbox)
await lifecycle(sandbox)
const running = sandbox.commands.run('sleep 60')
const ended = assert.rejects(running)
await new Promise((resolve) => { setTimeout(resolve, 200) })
await sandbox.kill()
await ended
assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
console.log('all answered')
process.exit(0)
