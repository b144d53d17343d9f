// Compares what xterm.js shows of a stream with what it shows of a snapshot and the rest of the
// stream, and with what the model shows.
import { readFileSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
const require = createRequire(process.cwd() + '/');
const { Terminal } = require('@xterm/headless');
const { Unicode11Addon } = require('@xterm/addon-unicode11');
const folder = process.argv[2];
const only = process.argv[3];
async function fed(file, cols, rows) {
  const term = new Terminal({ cols, rows, scrollback: 1000, allowProposedApi: true, logLevel: 'off' });
  term.loadAddon(new Unicode11Addon());
  term.unicode.activeVersion = '11';
  let title = ''; term.onTitleChange((t) => { title = t; });
  let bells = 0; term.onBell(() => bells++);
  const said = []; term.onData((d) => said.push(d));
  const bytes = readFileSync(file);
  try { term._core.writeSync(bytes); } catch (e) { return { crashed: true }; }
  const lines = (buffer) => {
    const out = []; const cell = buffer.getNullCell();
    for (let y = 0; y < buffer.length; y++) {
      const line = buffer.getLine(y); const cells = [];
      for (let x = 0; x < cols; x++) {
        line.getCell(x, cell);
        const bits = (cell.isInverse() ? 1 : 0) | (cell.isBold() ? 2 : 0) | (cell.fg & (1 << 28) ? 4 : 0) | (cell.isBlink() ? 8 : 0) | (cell.isInvisible() ? 16 : 0) | (cell.isStrikethrough() ? 32 : 0) | (cell.isItalic() ? 64 : 0) | (cell.isDim() ? 128 : 0) | (cell.isOverline() ? 512 : 0);
        const fg = cell.getFgColorMode() ? cell.getFgColorMode() + cell.getFgColor() : 0;
        const bg = cell.getBgColorMode() ? cell.getBgColorMode() + cell.getBgColor() : 0;
        cells.push([cell.getChars(), cell.getWidth(), fg.toString(16), bg.toString(16), bits.toString(16)].join('\x1f'));
      }
      out.push((line.isWrapped ? '+' : ' ') + cells.join('\x1e'));
    }
    return out;
  };
  const active = term.buffer.active;
  const core = term._core;
  return { head: `${cols} ${rows} ${active.cursorX} ${active.cursorY}`, normal: lines(term.buffer.normal), alternate: active.type === 'alternate' ? lines(term.buffer.alternate) : null,
    modes: JSON.stringify(core.coreService.decPrivateModes).replace(/"synchronizedOutput":\w+/, '') + JSON.stringify(core.coreService.modes) + core.coreMouseService.activeEncoding + core.coreService.isCursorHidden,
    region: `${core.buffer.scrollTop} ${core.buffer.scrollBottom} ${core.buffer.savedX} ${Math.max(core.buffer.savedY - core.buffer.ybase, 0)}`,
    style: JSON.stringify([core._inputHandler._curAttrData.fg, core._inputHandler._curAttrData.bg & 0x3fffffff & ~(1<<28)]), title, bells, said };
}
const show = (line) => line === undefined ? 'none' : line[0] + line.slice(1).split('\x1e').map((c) => { const p = c.split('\x1f'); return (p[0] || (p[1] === '0' ? '»' : '·')) + (p.slice(2).some((v) => v !== '0') ? `{${p.slice(2)}}` : '') + (p[1]==='0' && p[0] ? '(0)' : ''); }).join('').replace(/·+$/, '');
function diff(a, b, lax) {
  const out = [];
  if (a.head !== b.head) out.push(`cursor ${a.head} / ${b.head}`);
  for (const which of ['normal', 'alternate']) {
    const [one, two] = [a[which] ?? [], b[which] ?? []];
    if (one.length !== two.length) out.push(`${which}: ${one.length} / ${two.length} lines`);
    for (let y = 0; y < Math.min(one.length, two.length); y++) {
      let [p, q] = [one[y], two[y]];
      if (y === 0) { p = p.slice(1); q = q.slice(1); }
      if (p !== q && show(' ' + p) !== show(' ' + q)) out.push(`${which} ${y}\n   ${show(one[y])}\n   ${show(two[y])}`);
    }
  }
  for (const key of ['modes', 'region', 'style', 'title']) if (b[key] !== undefined && a[key] !== b[key]) out.push(`${key}\n   ${a[key]}\n   ${b[key]}`);
  return out;
}
let bad = [0, 0], count = 0, crashed = 0; const shown = [0, 0];
for (const file of readdirSync(folder).filter((f) => f.endsWith('.stayed'))) {
  const name = file.slice(0, -7); if (only && !name.startsWith(only)) continue;
  if (readFileSync(`${folder}/${name}.stayed`).includes('4000000000')) continue;
  const model = readFileSync(`${folder}/${name}.model`, 'utf8');
  const nl = model.indexOf('\n'); const head = model.slice(0, nl); const [cols, rows] = head.split(' ').map(Number);
  const [normal, alternate] = model.slice(nl + 1).split('\n=alternate\n').map((t) => t.split('\n'));
  const stayed = await fed(`${folder}/${name}.stayed`, cols, rows), back = await fed(`${folder}/${name}.back`, cols, rows);
  if (stayed.crashed) { crashed++; continue; }
  count++;
  [diff(stayed, { head, normal, alternate: alternate ?? null }), diff(stayed, back)].forEach((d, i) => {
    if (!d.length) return; bad[i]++;
    if (shown[i]++ < (+process.env.SHOW || 5)) console.log(`--- ${name}: xterm.js / ${i ? 'after snapshot' : 'model'}\n${d.slice(0, 4).join('\n')}\n   stream ${JSON.stringify(readFileSync(`${folder}/${name}.stayed`, 'utf8').slice(0, 700)).replaceAll('\\u001b', '␛')}`);
  });
}
console.log(`${count} cases, ${crashed} crash xterm.js; model differs in ${bad[0]}, snapshot in ${bad[1]}`);
process.exit(bad[0] + bad[1] ? 1 : 0);
