// "Run untrusted code" of the client's README: the lines of the example are unchanged; they are in
// a function because they return.
import { Isorun } from 'isorun'

const isorun = new Isorun()

async function answer(sourceFromLLM) {
  const sandbox = await isorun.create({ image: 'python:3.12-slim' })
  try {
    await sandbox.writeFile('/tmp/code.py', sourceFromLLM)
    const { stdout } = await sandbox.exec('python /tmp/code.py', 30)
    return stdout
  } finally {
    await sandbox.destroy()
  }
}

process.stdout.write(await answer('import os\nprint(sum(range(101)), os.getpid() > 1, "ü")\n'))
console.log((await isorun.list()).length)
