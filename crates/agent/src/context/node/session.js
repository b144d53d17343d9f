  let strip = null;
  function stripper() {
    if (typeof modules.stripTypeScriptTypes === 'function') {
      const { emitWarning } = process;
      return (code) => {
        process.emitWarning = () => {};
        try {
          return modules.stripTypeScriptTypes(code, { mode: 'strip' });
        } catch (error) {
          if (error.code !== 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX') throw error;
          return modules.stripTypeScriptTypes(code, { mode: 'transform' });
        } finally {
          process.emitWarning = emitWarning;
        }
      };
    }
    for (const from of [process.cwd(), '/usr/lib', '/usr/local/lib']) {
      try {
        const near = modules.createRequire(path.join(from, 'x.js'));
        const ts = near('typescript');
        return (code) => transpiled(ts, code);
      } catch {
        // Not there.
      }
    }
    return null;
  }

  function transpiled(ts, code) {
    const compilerOptions = {
      module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022, verbatimModuleSyntax: true, isolatedModules: true,
    };
    const made = ts.transpileModule(code, { compilerOptions, reportDiagnostics: true });
    const wrong = (made.diagnostics ?? []).find((one) => one.category === ts.DiagnosticCategory.Error);
    if (wrong) throw new SyntaxError(ts.flattenDiagnosticMessageText(wrong.messageText, '\n'));
    return made.outputText.replace(/^export \{\};\n?/m, '');
  }

  const session = new inspector.Session();
  let real;
  Object.defineProperty(globalThis, Symbol.for('isolet.handed'), { value: (value) => void (real = value) });

  // The value behind what the inspector says of it.
  function valueOf(said) {
    if (said.objectId) {
      real = undefined;
      session.post('Runtime.callFunctionOn', {
        functionDeclaration: "function (value) { globalThis[Symbol.for('isolet.handed')](value); }",
        objectId: said.objectId,
        arguments: [{ objectId: said.objectId }],
      });
      const found = real;
      real = undefined;
      session.post('Runtime.releaseObject', { objectId: said.objectId });
      return found;
    }
    if (said.unserializableValue !== undefined) {
      const text = said.unserializableValue;
      return text.endsWith('n') ? BigInt(text.slice(0, -1)) : Number(text);
    }
    return said.subtype === 'null' ? null : said.value;
  }

  let number = 0;
  function evaluate(code) {
    number += 1;
    const name = `cell-${number}.${typescript ? 'ts' : 'js'}`;
    const text = rewritten(typescript ? strip(code) : code);
    return new Promise((resolve, reject) => {
      running.fail = reject;
      const order = { expression: `${text}\n//# sourceURL=${name}`, replMode: true, awaitPromise: true };
      const post = () =>
        session.post('Runtime.evaluate', order, (fault, answer) => {
          if (fault) return reject(new Interrupted());
          const { result, exceptionDetails } = answer;
          if (exceptionDetails) return reject(valueOf(exceptionDetails.exception ?? result));
          resolve(valueOf(result));
        });
      try {
        globalThis[isolated] = post;
        interruptible.runInThisContext({ breakOnSigint: true });
      } catch (error) {
        reject(error.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? new Interrupted() : error);
      }
    });
  }

  const isolated = Symbol.for('isolet.post');
  Object.defineProperty(globalThis, isolated, { value: null, writable: true });
  const interruptible = new vm.Script("globalThis[Symbol.for('isolet.post')]()", { filename: '<isolet>' });

  // Sets environment variables, and returns what they were before.
  function putVariables(values) {
    const before = {};
    for (const [name, value] of Object.entries(values)) {
      before[name] = process.env[name] ?? null;
      if (value === null) delete process.env[name];
      else process.env[name] = value;
    }
    return before;
  }

  async function run(number, { code, stdin, env }) {
    begin(stdin);
    const before = putVariables(env ?? {});
    running = { fail: () => {} };
    watched(number.readInt32BE(4), code);
    let error = null;
    try {
      const value = await evaluate(code);
      if (value !== undefined) {
        globalThis._ = value;
        tell('result', bundle(value));
      }
    } catch (caught) {
      error = { caught };
    }
    unwatched();
    // What was rejected and caught by nobody is told with this run.
    await new Promise(setImmediate);
    running = null;
    putVariables(before);
    if (error) say(ERROR, told(error.caught));
    say(DONE, number);
  }

  let held = Buffer.alloc(0);
  const chunk = Buffer.alloc(64 * 1024);
  function listen() {
    fs.read(CONTROL, chunk, 0, chunk.length, null, (fault, count) => {
      if (fault || !count) exit(0);
      held = Buffer.concat([held, chunk.subarray(0, count)]);
      const length = held.length < 5 ? Infinity : held.readUInt32BE(0);
      if (held.length < 5 + length) return listen();
      const [kind, body] = [held[4], Buffer.from(held.subarray(5, 5 + length))];
      held = Buffer.from(held.subarray(5 + length));
      if (kind !== RUN) {
        acks += 1;
        return listen();
      }
      const number = Buffer.from(body.subarray(0, 8));
      run(number, JSON.parse(body.subarray(8).toString())).then(listen, listen);
    });
  }

  function complain(error) {
    if (running) return running.fail(error);
    err.write(`${frames(String(error?.stack ?? error)).join('\n')}\n`);
  }

  process.on('uncaughtException', complain);
  process.on('unhandledRejection', (reason) => {
    err.write(`Uncaught (in promise) ${frames(String(reason?.stack ?? plain(reason))).join('\n')}\n`);
  });
  session.connect();
  globalThis.console = new Console({ stdout: out, stderr: err });
  for (const name of ['module', 'exports', '__filename', '__dirname']) delete globalThis[name];
  globalThis.require = modules.createRequire(path.join(process.cwd(), 'context.js'));
  globalThis.display = display;
  begin(null);
  strip = typescript ? stripper() : null;
  if (typescript && !strip) {
    say(UNABLE, `node ${process.version} cannot take types out of TypeScript: it needs node 22.13 or later, or the package typescript in the start directory`);
    exit(1);
  }
  // A run that waits for nothing that can come would let the process end.
  setInterval(() => {}, 1 << 30);
  say(READY);
  listen();
})
