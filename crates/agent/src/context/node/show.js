  const REPRS = {
    'text/html': '_repr_html_', 'text/markdown': '_repr_markdown_', 'image/svg+xml': '_repr_svg_',
    'image/png': '_repr_png_', 'image/jpeg': '_repr_jpeg_', 'text/latex': '_repr_latex_',
    'application/json': '_repr_json_', 'application/javascript': '_repr_javascript_', 'application/pdf': '_repr_pdf_',
  };

  function bundle(value) {
    const data = {};
    if (value !== null && (typeof value === 'object' || typeof value === 'function')) {
      const show = value[Symbol.for('Jupyter.display')];
      if (typeof show === 'function') Object.assign(data, show.call(value));
      else if (typeof value._repr_mimebundle_ === 'function') Object.assign(data, value._repr_mimebundle_());
      for (const [kind, name] of Object.entries(REPRS)) {
        if (!(kind in data) && typeof value[name] === 'function') data[kind] = value[name]();
      }
      if (!('application/json' in data) && Object.keys(data).length === 0 && simple(value)) json(data, value);
    }
    if (!('text/plain' in data)) data['text/plain'] = plain(value);
    return data;
  }

  function simple(value) {
    return Array.isArray(value) || [Object.prototype, null].includes(Object.getPrototypeOf(value));
  }

  // As JSON too, where that is a fair picture of it.
  function json(data, value) {
    try {
      const text = JSON.stringify(value);
      if (text !== undefined && text.length <= TEXT_BYTES_MAX) data['application/json'] = JSON.parse(text);
    } catch {
      // It has circles, or numbers that JSON has not.
    }
  }

  function plain(value) {
    return util.inspect(value, { depth: 4, maxArrayLength: 1000, maxStringLength: TEXT_BYTES_MAX });
  }

  // As JSON. Halves of a pair of surrogates, which stand in it as escapes, are no text to whoever reads it.
  function packed(said) {
    const text = JSON.stringify(said);
    if (!/\\ud[89a-f]/.test(text)) return text;
    return text.replace(/\\(?:u[0-9a-f]{4}|.)/g, (one) => (/^\\ud[89a-f]/.test(one) ? '\ufffd' : one));
  }

  function tell(kind, data) {
    const cut = {};
    const size = (value) => (typeof value === 'string' || value instanceof Uint8Array ? value.length : 0);
    const total = () => Object.values(data).reduce((sum, value) => sum + size(value), 0);
    const text = data['text/plain'];
    if (typeof text === 'string' && text.length > TEXT_BYTES_MAX) {
      cut['text/plain'] = text.length;
      data['text/plain'] = text.slice(0, TEXT_BYTES_MAX);
    }
    while (total() > BUNDLE_BYTES_MAX) {
      const largest = Object.keys(data).reduce((a, b) => (size(data[a]) >= size(data[b]) ? a : b));
      cut[largest] = size(data[largest]);
      delete data[largest];
    }
    for (const [name, value] of Object.entries(data)) {
      if (value instanceof Uint8Array) data[name] = Buffer.from(value).toString('base64');
    }
    const said = { kind, data, metadata: {} };
    if (Object.keys(cut).length) said.cut = cut;
    sayAndWait(DISPLAY, packed(said));
  }

  const display = (value, options) => tell('display', options?.raw ? { ...value } : bundle(value));

  function told(error) {
    let [name, message, lines] = ['Error', '', []];
    try {
      if (error instanceof Error || util.types.isNativeError(error)) {
        name = String(error.name || 'Error').slice(0, 1000);
        message = String(error.message);
        lines = frames(String(error.stack ?? ''));
      } else {
        name = 'Uncaught';
        message = plain(error);
        lines = [`Uncaught ${message.slice(0, 1000)}`];
      }
    } catch {
      lines = ['(its text cannot be made)'];
    }
    if (lines.length > 400) lines = [...lines.slice(0, 200), `… ${lines.length - 400} lines …`, ...lines.slice(-200)];
    lines = lines.map((line) => line.slice(0, 4000));
    return packed({ name, message: message.slice(0, TEXT_BYTES_MAX), traceback: lines });
  }

  // Frames of this driver are no part of anybody's program.
  function frames(stack) {
    const lines = stack.split('\n');
    const ours = lines.findIndex((line) => /^\s+at .*(node:inspector|<isolet>|\[eval\])/.test(line));
    const kept = ours < 0 ? lines : lines.slice(0, ours);
    return kept.filter((line) => line !== '');
  }

