/** The content of an xterm.js terminal, as text for comparison. */

/** A line: its cells, with markers where attributes change. Blank cells differ only in visible attributes. */
function line(found, cols, linkOf) {
  const cell = found.getCell(0);
  if (!cell) return "";
  let text = found.isWrapped ? "wrapped|" : "|";
  let last = "";
  for (let x = 0; x < cols; x++) {
    if (!found.getCell(x, cell)) break;
    const chars = cell.getChars();
    const attributes = cell.getWidth() === 0 ? last : look(cell, chars.trim() === "", linkOf);
    if (attributes !== last) text += `<${attributes}>`;
    last = attributes;
    text += cell.getWidth() === 0 ? "" : chars === "" ? " " : chars;
  }
  return text.trimEnd();
}

function look(cell, blank, linkOf) {
  const parts = [];
  const extended = cell.hasExtendedAttrs?.() ? cell.extended : undefined;
  const drawn = cell.isUnderline() || cell.isStrikethrough() || cell.isOverline() || cell.isInverse();
  if (cell.getBgColorMode() !== 0) parts.push(`bg${cell.getBgColorMode() >> 24}:${cell.getBgColor()}`);
  if ((!blank || drawn) && cell.getFgColorMode() !== 0) {
    parts.push(`fg${cell.getFgColorMode() >> 24}:${cell.getFgColor()}`);
  }
  const flags = ["Inverse", "Underline", "Strikethrough", "Overline"];
  if (!blank || drawn) flags.push("Bold", "Dim", "Italic", "Blink", "Invisible");
  for (const flag of flags) if (cell[`is${flag}`]()) parts.push(flag.toLowerCase());
  if (cell.isUnderline() && extended) {
    parts.push(`style${extended.underlineStyle}`, `colour${extended.underlineColor & 0x3ffffff}`);
  }
  if (extended?.urlId) parts.push(`link:${linkOf(extended.urlId)}`);
  return parts.join(",");
}

function lines(buffer, cols, linkOf) {
  return Array.from({ length: buffer.length }, (_, y) => line(buffer.getLine(y), cols, linkOf));
}

/** Size, cursor, modes and all lines; also those of the primary screen while the alternate screen is active. */
export function dump(xterm, title) {
  const core = xterm._core;
  const { active, normal } = xterm.buffer;
  const linkOf = (id) => core._oscLinkService.getLinkData(id)?.uri;
  const inner = core._bufferService.buffer;
  const { cursorStyle, ...modes } = core.coreService.decPrivateModes;
  const own = Object.fromEntries(
    Object.entries({ ...xterm.modes, ...modes }).filter(([, value]) => typeof value !== "object" && value !== undefined),
  );
  return {
    size: `${xterm.cols}x${xterm.rows}`,
    screen: active.type,
    cursor: { x: active.cursorX, y: active.cursorY, hidden: core.coreService.isCursorHidden, style: cursorStyle },
    modes: own,
    region: [inner.scrollTop, inner.scrollBottom],
    title,
    lines: lines(active, xterm.cols, linkOf),
    under: active.type === "alternate" ? lines(normal, xterm.cols, linkOf) : [],
  };
}
