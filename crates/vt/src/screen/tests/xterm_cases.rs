//! Writes cases for `tests/xterm/compare.mjs`: streams, the resulting states, and snapshots.

use super::*;

/// Each row in the form in which xterm.js describes cells: text, width, colours, attributes.
fn rows(model: &Model, buffer: &crate::buffer::Buffer) -> Vec<String> {
    let line = |line: &ScreenLine| {
        let cells = (0..buffer.cols).map(|x| line.get(x)).map(|cell| {
            let text = match cell.cluster().and_then(|number| model.clusters.get(number)) {
                Some(text) => text.to_string(),
                None => cell.char().map(String::from).unwrap_or_default(),
            };
            let style = cell.style;
            let colour = crate::cell::COLOUR;
            let attributes = style.fg >> 26 | (style.bg >> 26 & 0b1011) << 6;
            format!(
                "{text}\u{1f}{}\u{1f}{:x}\u{1f}{:x}\u{1f}{attributes:x}",
                cell.width(),
                style.fg & colour,
                style.bg & colour
            )
        });
        let cells: Vec<String> = cells.collect();
        format!("{}{}", if line.wrapped { "+" } else { " " }, cells.join("\u{1e}"))
    };
    buffer.lines.iter().map(line).collect()
}

/// Writes a case: a stream, and the state of the model after it. With `other`, the size changes in
/// the middle of the part before the cut.
fn write_case(
    folder: &std::path::Path,
    name: &str,
    size: Size,
    other: Option<Size>,
    bytes: &[u8],
    cut: usize,
) {
    // Not within a character, because xterm.js may lose a character that is split.
    let changed = (0..=cut / 2).rev().find(|at| *at == 0 || bytes[at - 1] < 0x80).unwrap_or(0);
    let begun = || {
        let mut screen = fed(size, &[&bytes[..changed]]);
        screen.resize(other.unwrap_or(size));
        screen
    };
    let mut first = begun();
    let mut all = begun();
    first.feed(&bytes[changed..cut], changed as u64);
    let back = [first.snapshot().as_slice(), &bytes[cut..]].concat();
    all.feed(&[&bytes[changed..], b"\x18"].concat(), changed as u64);
    let model = &all.model;
    let last = other.unwrap_or(size);
    let shown = model.alternate.as_deref().unwrap_or(&model.primary);
    let mut text = format!(
        "{} {} {} {} {} {} {changed}\n",
        last.cols, last.rows, shown.x, shown.y, size.cols, size.rows
    );
    text += &rows(model, &model.primary).join("\n");
    if let Some(alternate) = model.alternate.as_deref() {
        text += "\n=alternate\n";
        text += &rows(model, alternate).join("\n");
    }
    let write = |end: &str, bytes: &[u8]| {
        std::fs::write(folder.join(format!("{name}.{end}")), bytes).expect("a case")
    };
    write("stayed", bytes);
    write("back", &back);
    write("model", text.as_bytes());
}

fn smaller(mut bytes: Vec<u8>) -> Vec<u8> {
    for at in 0..bytes.len().saturating_sub(9) {
        if bytes[at..].starts_with(b"4000000000") {
            bytes[at..at + 10].copy_from_slice(b"0000040000");
        }
    }
    bytes
}

#[test]
#[ignore = "writes cases for tests/xterm/compare.mjs"]
fn cases_for_xterm_js() {
    let folder = std::env::var_os("ISOLET_XTERM_CASES").expect("a folder");
    let folder = std::path::PathBuf::from(folder);
    for (name, size, bytes) in recorded() {
        for part in 1..8 {
            write_case(
                &folder,
                &format!("{name}-{part}"),
                size,
                None,
                &bytes[..bytes.len() * (part + 1) / 8],
                bytes.len() * part / 8 - 3,
            );
        }
    }
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for index in 0..3000 {
        let bytes = stream().new_tree(&mut runner).expect("a stream").current();
        // xterm.js inserts any number of lines one by one, which takes too long.
        let bytes = smaller(bytes);
        let other = (index % 2 == 1)
            .then(|| Size { cols: 5 + index as u16 % 31, rows: 2 + index as u16 % 11 });
        write_case(
            &folder,
            &format!("any-{index}"),
            SMALL,
            other,
            &bytes,
            (index * 7919) % (bytes.len() + 1),
        );
    }
}
