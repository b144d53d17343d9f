// The shell over a WebSocket as the client's documents show it, without the types, because Node
// runs this file directly, and with a check of the end of a run.
import { WebSocket } from 'ws'
import { Isorun } from 'isorun'

const isorun = new Isorun()
const sandbox = await isorun.create({ image: 'python:3.12-slim' })

const ws = new WebSocket(
  `${isorun.apiUrl.replace(/^http/, 'ws')}/v1/runs/${sandbox.id}/shell`,
  { headers: { Authorization: `Bearer ${process.env.ISORUN_API_KEY}` } },
)

await new Promise((resolve, reject) => {
  ws.once('open', () => resolve())
  ws.once('error', reject)
})

function run(id, command) {
  return new Promise((resolve) => {
    let stdout = '', stderr = ''
    const handler = (raw) => {
      const msg = JSON.parse(raw.toString())
      if (msg.id !== id) return
      if (msg.type === 'shell_out') stdout += msg.data
      else if (msg.type === 'shell_err') stderr += msg.data
      else if (msg.type === 'shell_exit') {
        ws.off('message', handler)
        resolve({ exitCode: msg.code, stdout, stderr })
      }
    }
    ws.on('message', handler)
    ws.send(JSON.stringify({ type: 'shell_run', id, command }))
  })
}

try {
  await run('r1', 'cd /tmp') // cwd persists
  await run('r2', 'export FOO=bar') // env persists
  const r = await run('r3', 'echo $FOO')
  console.log(r.stdout) // bar

  // The same page documents what persists and what happens when a shell ends.
  await run('r4', 'X=42; hi() { echo "hi $1"; }; alias twice="echo two"; sleep 1000 &')
  const all = await run('r5', 'pwd; echo $X; hi you; twice; jobs -r | wc -l; echo loud >&2; (exit 7)')
  console.log(JSON.stringify(all))
  const closed = new Promise((resolve) => {
    ws.on('message', (raw) => {
      const msg = JSON.parse(raw.toString())
      if (msg.type === 'shell_closed') resolve(msg)
    })
  })
  ws.send(JSON.stringify({ type: 'shell_run', id: 'r6', command: 'exit 3' }))
  console.log((await closed).code)
} finally {
  ws.close()
  await sandbox.destroy()
}
