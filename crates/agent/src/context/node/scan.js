  // Where code imports: outside of texts and comments. `import(…)` of code that was evaluated finds
  // no loader, and `import … from` is no statement there: both become calls of ours.
  function rewritten(code) {
    if (!/\b(import|export)\b/.test(code)) return code;
    let [made, from, depth] = ['', 0, 0];
    for (let at = 0; at < code.length; ) {
      const end = skipped(code, at);
      if (end > at) {
        at = end;
        continue;
      }
      const sign = code[at];
      if ('({['.includes(sign)) depth += 1;
      if (')}]'.includes(sign)) depth -= 1;
      const word = /^(import|export)\b/.exec(code.slice(at, at + 7))?.[1];
      if (!word || (at && /[\w$.#]/.test(code[at - 1]))) {
        at += 1;
        continue;
      }
      const [text, length] = statement(code.slice(at), word, depth);
      made += code.slice(from, at) + text;
      at = from = at + length;
    }
    return made + code.slice(from);
  }

  // The end of a text or comment that begins here; `at` where none does.
  function skipped(code, at) {
    const two = code.slice(at, at + 2);
    if (two === '//') return ended(code.indexOf('\n', at), code);
    if (two === '/*') return ended(code.indexOf('*/', at + 2) + 1, code) + (code.indexOf('*/', at + 2) < 0 ? 0 : 1);
    const quote = code[at];
    if (quote !== '"' && quote !== "'" && quote !== '`') return at;
    let next = at + 1;
    while (next < code.length && code[next] !== quote) next += code[next] === '\\' ? 2 : 1;
    return Math.min(next + 1, code.length);
  }

  const ended = (at, code) => (at <= 0 ? code.length : at);

  const IMPORT = /^import\s+(?:([\w$]+)\s*,?\s*)?(?:\*\s*as\s+([\w$]+)\s*|\{([^}]*)\}\s*)?from\s*(["'])(.*?)\4\s*(?:with\s*\{[^}]*\}\s*)?;?/;
  const ALONE = /^import\s*(["'])(.*?)\1\s*;?/;

  function statement(rest, word, depth) {
    if (word === 'export') {
      // Nobody imports a context.
      const plain = depth === 0 && /^export\s+(?=(?:const|let|var|function|class|async)\b)/.exec(rest);
      return plain ? ['', plain[0].length] : [word, word.length];
    }
    const dynamic = /^import\s*(?=\()/.exec(rest);
    if (dynamic) return ["globalThis[Symbol.for('isolet.import')]", dynamic[0].length];
    const alone = depth === 0 && ALONE.exec(rest);
    if (alone) return [`await ${call(alone[2])};`, alone[0].length];
    const found = depth === 0 && IMPORT.exec(rest);
    if (!found) return [word, word.length];
    const [all, whole, space, names, , from] = found;
    const parts = [];
    if (whole) parts.push(`default: ${whole}`);
    if (names) parts.push(names.replace(/\btype\s+[\w$]+\s*,?/g, '').replace(/([\w$]+)\s+as\s+([\w$]+)/g, '$1: $2'));
    const lines = '\n'.repeat(all.split('\n').length - 1);
    if (space) {
      const more = whole ? `, { default: ${whole} } = ${space}` : '';
      return [`const ${space} = await ${call(from)}${more};${lines}`, all.length];
    }
    return [`const { ${parts.join(', ').replace(/\n/g, ' ')} } = await ${call(from)};${lines}`, all.length];
  }

  const call = (from) => `globalThis[Symbol.for('isolet.import')](${JSON.stringify(from)})`;

  Object.defineProperty(globalThis, Symbol.for('isolet.import'), {
    value: (name) => {
      const text = String(name);
      if (modules.isBuiltin(text) || /^[a-z]+:/.test(text)) return load(text);
      if (/^\.{0,2}\//.test(text)) return load(url.pathToFileURL(path.resolve(text)).href);
      // A package: found from the start directory, with the conditions of an import.
      return load(text).catch((fault) => {
        if (fault?.code !== 'ERR_MODULE_NOT_FOUND') throw fault;
        return load(url.pathToFileURL(globalThis.require.resolve(text)).href);
      });
    },
  });

