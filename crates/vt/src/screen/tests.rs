//! Compares snapshots with streams that are cut anywhere: a client that attaches again must see the
//! same as a client that stayed attached.

mod comparison;
mod limits;
mod regressions;
mod reply_filter;
mod size;
mod xterm_cases;

use super::*;
use crate::cell::{Cell, Style};
use crate::line::ScreenLine;
use crate::model::Model;
use proptest::prelude::*;

const SMALL: Size = Size { cols: 20, rows: 6 };

/// The state of a model as text that can be compared and read.
fn seen(mut screen: Screen) -> String {
    // Ends an incomplete sequence.
    screen.feed(b"\x18", 0);
    let model = &screen.model;
    let mut out = String::new();
    for buffer in [Some(&model.primary), model.alternate.as_deref()].into_iter().flatten() {
        let shown = std::ptr::eq(buffer, model.alternate.as_deref().unwrap_or(&model.primary));
        out += &format!("size {}x{} base {}\n", buffer.cols, buffer.rows, buffer.history_len());
        if shown {
            out += &format!("cursor {} {}\n", buffer.x, buffer.y);
        }
        let line = buffer.saved.line.saturating_sub(buffer.history_len()).min(buffer.rows - 1);
        let saved = buffer.saved;
        out += &format!(
            "saved {} {line} {} {:?}\n",
            saved.x,
            style(model, saved.style),
            saved.charsets
        );
        let tabs: Vec<usize> = (0..buffer.cols).filter(|x| buffer.tabs.get(*x)).collect();
        out += &format!("region {} {} tabs {tabs:?}\n", buffer.top, buffer.bottom);
        for (index, line) in buffer.lines.iter().enumerate() {
            let wrapped = line.wrapped && index > 0;
            out += &format!("{index}{}|{}\n", if wrapped { '+' } else { ' ' }, cells(model, line));
        }
    }
    out += &format!("style {} {:?} {:?}\n", style(model, model.style), model.charsets, model.modes);
    out += &format!(
        "keys {:?} {:?} {:?} {:?}\n",
        model.keys, model.title, model.titles, model.colours
    );
    out
}

fn style(model: &Model, style: Style) -> String {
    let extended = model.extended_styles.get(style.extended());
    let shown = if style.more & 7 == 1 || style.fg & crate::cell::UNDERLINE == 0 {
        0
    } else {
        style.more & 7
    };
    let extended = extended.map(|extended| format!("{extended:?}")).unwrap_or_default();
    format!("{:x}/{:x}/{shown}{extended}", style.fg, style.bg)
}

/// Cells as text: a space is `_`, an empty cell `·`.
fn cells(model: &Model, line: &ScreenLine) -> String {
    let mut out = String::new();
    let mut last = Style::default();
    let cells: Vec<Cell> = line.cells().to_vec();
    for (index, cell) in cells.iter().enumerate() {
        if cell.style != last {
            last = cell.style;
            out += &format!("<{}>", style(model, last));
        }
        let second = cell.width() == 0 && index > 0 && cells[index - 1].width() == 2;
        match (cell.char(), cell.cluster()) {
            _ if second => out.push('»'),
            (Some(' '), _) => out.push('_'),
            (Some(c), _) => out.push(c),
            (None, Some(number)) => out += model.clusters.get(number).map_or("?", |text| text),
            (None, None) => out.push('·'),
        }
    }
    out
}

/// A screen that was fed these parts.
fn fed(size: Size, parts: &[&[u8]]) -> Screen {
    let mut screen = Screen::new(size);
    let mut at = 0;
    for part in parts {
        screen.feed(part, at);
        at += part.len() as u64;
    }
    screen
}

/// Asserts that a snapshot contains no query, no bell and no clipboard command.
fn asks_nothing(size: Size, snapshot: &[u8]) {
    let mut screen = fed(size, &[snapshot]);
    assert_eq!(screen.take_queries(), [], "{:?}", String::from_utf8_lossy(snapshot));
    assert!(!snapshot.windows(4).any(|window| window == b"\x1b]52"));
}

/// Compares a client that stayed with one that attached again after `cut` bytes.
fn same(size: Size, bytes: &[u8], cut: usize) -> Result<(), (String, String, String)> {
    let stayed = fed(size, &[bytes]);
    let mut first = fed(size, &[&bytes[..cut]]);
    let snapshot = first.snapshot();
    asks_nothing(size, &snapshot);
    let mut back = Screen::new(size);
    back.feed(&snapshot, 0);
    back.feed(&bytes[cut..], snapshot.len() as u64);
    let stayed = seen(stayed);
    let back = seen(back);
    if stayed == back {
        Ok(())
    } else {
        Err((stayed, back, String::from_utf8_lossy(&snapshot).replace('\x1b', "␛")))
    }
}

fn assert_same(size: Size, bytes: &[u8], cut: usize) {
    if let Err((stayed, back, snapshot)) = same(size, bytes, cut) {
        let shown = String::from_utf8_lossy(bytes).replace('\x1b', "␛");
        panic!(
            "cut at {cut} of {shown:?}\n--- stayed\n{stayed}\n--- back\n{back}\n--- snapshot\n{snapshot}"
        );
    }
}

/// Promises: Z15.
#[test]
fn a_snapshot_gives_the_same_screen_wherever_the_output_is_cut() {
    let streams: &[&[u8]] = &[
        b"hello\r\nworld\x1b[1;31mred\x1b[0m \x1b[4:3;58:5:3mcurly\x1b[m",
        b"a long line that runs over into the next one and the one after that, and on\r\n$ ",
        "wide \u{6f22}\u{5b57}\u{6f22}\u{5b57}\u{6f22}\u{5b57}\u{6f22}\u{5b57}\u{6f22}\u{5b57}\u{6f22}\u{5b57} e\u{301}\u{302}x".as_bytes(),
        b"\x1b[?1049h\x1b[2;4r\x1b[?6h\x1b[3;5Hx\x1b[?25l\x1b[?1000h\x1b[?1006h\x1b[44mzz\x1b[K\x1b[?1049lback",
        b"1\n2\n3\n4\n5\n6\n7\n8\n9\x1b[3A\x1b7\x1b[Lx\x1b8\x1b[My\x1b[5;20Hend\x1b[5b",
        b"\x1b]2;title\x07\x1b]8;;http://a/b\x1b\\link\x1b]8;;\x1b\\ \x1b(0lqqk\x1b(B\x0e\x0f\x1b)0\x0eqq",
        b"\x1b[3g\x1b[5G\x1bH\r\tx\x1b[>1u\x1b[>4;2m\x1b[?12l\x1b[3 q\x1b=\x1b[4h\x1b[?7l\x1b[?2004h\x1b[?1004h",
        b"\x1b]4;1;#ff0000\x1b\\\x1b]11;rgb:10/20/30\x07\x1bPq#0;2;0;0;0\x1b\\\x1b_Gf=100;AAAA\x1b\\x",
        "01234567890123456789\x1b[41mab\x1b[K\r\n\x1b[42m0123456789012345678\u{6f22}x\x1b[1;20H\x1b[X".as_bytes(),
        b"\x1b[2;5r\x1b[?6h\x1b[?47h\r\n\r\n\r\n\r\n\x1b[?47lbelow",
        b"\xe6\xbc\xa2\xff\xc3\x28 \xf0\x9f\x98\x80 ok\xe2\x82",
    ];
    for stream in streams {
        (0..=stream.len()).for_each(|cut| assert_same(SMALL, stream, cut));
    }
}

/// Parts of generated streams.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![20 => 0..30_u32, 1 => Just(65_535), 1 => Just(4_000_000_000)];
    let numbers = proptest::collection::vec(number, 0..4);
    let codes = (
        prop::sample::select(vec!["", "?", ">", "<", "="]),
        numbers,
        prop::sample::select(vec!["", "", " ", "$", "!"]),
        0x40..0x7f_u8,
    )
        .prop_map(|(mark, numbers, middle, last)| {
            let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
            format!("\x1b[{mark}{}{middle}{}", numbers.join(";"), last as char).into_bytes()
        });
    let modes = prop::sample::select(vec![
        1, 2, 5, 6, 7, 9, 12, 25, 45, 47, 66, 1000, 1002, 1003, 1004, 1006, 1016, 1047, 1048, 1049,
        2004, 2026,
    ]);
    let modes = (modes, any::<bool>())
        .prop_map(|(mode, on)| format!("\x1b[?{mode}{}", if on { 'h' } else { 'l' }).into_bytes());
    let colours = proptest::collection::vec(prop_oneof![0..10_u32, 21..60_u32, 90..108_u32], 0..5)
        .prop_map(|numbers| {
            let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
            format!("\x1b[{}m", numbers.join(";")).into_bytes()
        });
    let known = prop::sample::select(vec![
        "\x1b7",
        "\x1b8",
        "\x1bD",
        "\x1bM",
        "\x1bE",
        "\x1bH",
        "\x1b(0",
        "\x1b(B",
        "\x0e",
        "\x0f",
        "\x1b#8",
        "\x1b[4:3m",
        "\x1b[58;5;9m",
        "\x1b]2;t\x1b\\",
        "\x1b]8;id=1;http://x\x07",
        "\x1b]8;;\x07",
        "\x1b]4;1;#123456\x07",
        "\x1b[3g",
        "\t",
        "\u{8}",
        "\x1b[22t",
        "\x1b[23t",
        "\x1b[2;5r",
        "\x1b[r",
        "\x1b[H",
        "\x1b[J",
        "\x1b[1J",
        "\x1b[K",
        "\x1b[1K",
        "\x1b[2K",
        "\x1b[4h",
        "\x1b[4l",
        "\x1b",
        "\x1b[",
        "\u{6f22}",
        "\u{301}",
        "\u{1f600}",
        "\u{200d}",
        "\u{9b}3m",
        "\x1bP+q",
        "\x1b\\",
        "\x18",
    ]);
    prop_oneof![
        4 => "[ -~]{1,24}".prop_map(String::into_bytes),
        2 => Just(b"\r\n".to_vec()),
        1 => Just(b"\n".to_vec()),
        2 => colours,
        3 => codes,
        2 => modes,
        4 => known.prop_map(|text: &str| text.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 1..4),
    ]
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(piece(), 1..40).prop_map(|pieces| pieces.concat())
}

/// The same streams in every run; with `ISOLET_SOAK` other streams each time, and many more.
fn search() -> ProptestConfig {
    use proptest::test_runner::RngSeed;
    if std::env::var_os("ISOLET_SOAK").is_some() {
        ProptestConfig { cases: 200_000, ..Default::default() }
    } else {
        ProptestConfig { cases: 4_000, rng_seed: RngSeed::Fixed(4), ..Default::default() }
    }
}

proptest! {
    #![proptest_config(search())]

    /// Promises: Z15.
    #[test]
    fn a_snapshot_gives_the_same_screen_for_any_stream(bytes in stream(), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(bytes.len() + 1);
        if let Err((stayed, back, snapshot)) = same(SMALL, &bytes, cut) {
            let shown = String::from_utf8_lossy(&bytes).replace('\x1b', "␛");
            prop_assert!(false, "cut at {cut} of {shown:?}\n--- stayed\n{stayed}\n--- back\n{back}\n--- snapshot\n{snapshot}");
        }
    }

    #[test]
    fn the_screen_is_the_same_however_the_output_is_split(bytes in stream(), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(bytes.len() + 1);
        prop_assert_eq!(seen(fed(SMALL, &[&bytes])), seen(fed(SMALL, &[&bytes[..cut], &bytes[cut..]])));
    }
}

/// Recorded output of vim, less, htop, tmux and bash. File names end with the size.
fn recorded() -> Vec<(String, Size, Vec<u8>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/streams");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the recorded streams") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let (cols, rows) =
            name.rsplit_once('-').and_then(|(_, size)| size.split_once('x')).expect("a size");
        let size = Size { cols: cols.parse().expect("columns"), rows: rows.parse().expect("rows") };
        all.push((name, size, std::fs::read(&path).expect("a stream")));
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// Promises: Z15.
#[test]
fn a_snapshot_gives_the_same_screen_for_what_real_programs_write() {
    for (name, size, bytes) in recorded() {
        // To cut at every byte of all of them would take minutes.
        for cut in (0..bytes.len()).step_by(499).chain(bytes.len() - 40..=bytes.len()) {
            if let Err((stayed, back, _)) = same(size, &bytes, cut) {
                let differs = stayed.lines().zip(back.lines()).find(|(a, b)| a != b);
                panic!("{name} cut at {cut}: {differs:#?}");
            }
        }
    }
}

#[test]
#[ignore = "a measurement, for release builds"]
fn how_fast_it_is() {
    let time = |label: &str, bytes: &[u8], size: Size| {
        let mut screen = Screen::new(size);
        let start = std::time::Instant::now();
        let rounds = (64 << 20) / bytes.len();
        for round in 0..rounds {
            for (index, part) in bytes.chunks(4096).enumerate() {
                screen.feed(part, (round * bytes.len() + index * 4096) as u64);
            }
        }
        let rate = (rounds * bytes.len()) as f64 / start.elapsed().as_secs_f64() / 1e6;
        let start = std::time::Instant::now();
        let snapshot = screen.snapshot().len();
        println!("{label}: {rate:.0} MB/s, snapshot {snapshot} bytes in {:?}", start.elapsed());
    };
    let wide = Size { cols: 200, rows: 50 };
    let log: Vec<u8> = (0..20_000)
        .flat_map(|n| {
            format!(
                "2026-11-21T22:{:02}:{:02} info request {n} took {} ms path=/v1/sandboxes\r\n",
                n / 60 % 60,
                n % 60,
                n % 97
            )
            .into_bytes()
        })
        .collect();
    time("log", &log, wide);
    let seq: Vec<u8> = (0..200_000).flat_map(|n| format!("{n}\r\n").into_bytes()).collect();
    time("seq", &seq, wide);
    time("unicode", "漢字 é ü wide и кириллица 😀\r\n".repeat(10_000).as_bytes(), wide);
    for (name, size, bytes) in recorded() {
        time(&name, &bytes, size);
        let mut screen = fed(size, &[&bytes[..bytes.len() / 2]]);
        let start = std::time::Instant::now();
        let snapshot = screen.snapshot().len();
        println!("  at its half: {snapshot} bytes in {:?}", start.elapsed());
    }
}
