// The driver of a JavaScript or TypeScript context: runs what it is sent on descriptor 3, in one
// global scope, and says there what came of it. It runs as the tenant, beside the tenant's code,
// and is trusted with nothing.
'use strict';
((importer) => {
  const fs = require('fs');
  const vm = require('vm');
  const util = require('util');
  const inspector = require('inspector');
  const { Console } = require('console');
  const { Readable, Writable } = require('stream');
  const modules = require('module');
  const path = require('path');
  const url = require('url');

  const CONTROL = 3;
  const INTERRUPT = 5;
  const [READY, DISPLAY, ERROR, DONE, SYNC, UNABLE] = [1, 2, 3, 4, 5, 6];
  const RUN = 1;
  const BUNDLE_BYTES_MAX = 8 * 1024 * 1024;
  const TEXT_BYTES_MAX = 1024 * 1024;
  const typescript = process.env.ISOLET_CONTEXT_TYPESCRIPT === '1';
  delete process.env.ISOLET_CONTEXT_TYPESCRIPT;
  const exit = process.reallyExit.bind(process);
  const { readSync, writeSync } = fs;

  let running = null;
  let syncs = 0;
  let acks = 0;

  function whole(fd, bytes) {
    for (let at = 0; at < bytes.length; ) {
      try {
        at += writeSync(fd, bytes, at);
      } catch (error) {
        if (error.code !== 'EAGAIN') throw error;
      }
    }
  }

  function say(kind, text) {
    const body = Buffer.from(text ?? '');
    const frame = Buffer.alloc(5 + body.length);
    frame.writeUInt32BE(body.length, 0);
    frame[4] = kind;
    body.copy(frame, 5);
    whole(CONTROL, frame);
  }

  // Waits until the agent has read all that was written before.
  function sayAndWait(kind, text) {
    if (!running) return say(kind, text);
    syncs += 1;
    say(kind, text);
    const head = Buffer.alloc(5);
    while (acks < syncs) {
      for (let at = 0; at < 5; ) {
        const count = readSync(CONTROL, head, at, 5 - at);
        if (!count) exit(0);
        at += count;
      }
      acks += 1;
    }
  }

  let last = null;
  // Children that run, and whether one may have written since the agent last read the streams.
  let children = 0;
  let mixed = false;

  // Before a child starts, which writes to the same descriptors.
  function settle() {
    if (running) sayAndWait(SYNC);
    mixed = true;
  }

  // The module is loaded only with the code that needs it: it takes 2 MB.
  let settling = false;
  function settleBeforeChildren() {
    if (settling) return;
    settling = true;
    const module = require('child_process');
    const { prototype } = module.ChildProcess;
    const { spawn } = prototype;
    prototype.spawn = function (...args) {
      settle();
      const status = spawn.apply(this, args);
      children += 1;
      this.once('close', () => {
        children -= 1;
        mixed = true;
      });
      return status;
    };
    for (const name of ['spawnSync', 'execSync', 'execFileSync']) {
      const start = module[name];
      const starts = (...args) => {
        settle();
        return start(...args);
      };
      Object.defineProperty(starts, 'name', { value: name });
      module[name] = starts;
    }
    modules.syncBuiltinESMExports();
  }
  const starting = /^(node:)?child_process$/;
  const { _load } = modules;
  modules._load = function (name, ...rest) {
    if (starting.test(name)) settleBeforeChildren();
    return _load.call(this, name, ...rest);
  };
  const load = (name) => {
    if (starting.test(name) || !modules.isBuiltin(name)) settleBeforeChildren();
    return importer(name);
  };

  class Out extends Writable {
    constructor(fd) {
      super({ decodeStrings: true });
      // A descriptor of its own: what the code does to the first ones is its own affair.
      this.own = fs.openSync(`/proc/self/fd/${fd}`, 'w');
      this.fd = fd;
      this.isTTY = false;
    }
    write(data, encoding, done) {
      if (typeof encoding === 'function') [encoding, done] = [undefined, encoding];
      const bytes = typeof data === 'string' ? Buffer.from(data, encoding) : Buffer.from(data);
      // What was written to the other one, or by a child, before this is to be seen before it.
      if (last !== this || mixed || children) {
        if ((last || mixed || children) && running) sayAndWait(SYNC);
        last = this;
        mixed = false;
      }
      whole(this.own, bytes);
      if (done) process.nextTick(done);
      return true;
    }
    _write(data, _, done) {
      this.write(data);
      done();
    }
    destroy() {
      return this;
    }
  }

  const out = new Out(1);
  const err = new Out(2);
  const given = (name, value) =>
    Object.defineProperty(process, name, { value, configurable: true, writable: true, enumerable: true });

  class ProcessExit extends Error {
    constructor(code) {
      super(String(code ?? process.exitCode ?? 0));
      this.name = 'ProcessExit';
    }
  }

  // What an earlier run replaced is put back.
  function begin(stdin) {
    given('stdout', out);
    given('stderr', err);
    given('stdin', Readable.from(stdin == null ? [] : [Buffer.from(stdin)], { objectMode: false }));
    process.exit = (code) => {
      throw new ProcessExit(code);
    };
    process.exitCode = undefined;
    process.removeAllListeners('SIGINT');
    process.on('SIGINT', interrupted);
    last = null;
  }

  function interrupted() {
    if (running) running.fail(new Interrupted());
  }

  class Interrupted extends Error {
    constructor() {
      super('the run was interrupted');
      this.name = 'Interrupted';
      this.stack = '';
    }
  }

