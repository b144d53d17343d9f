//! Measures the model beside `alacritty_terminal`, the most complete of the existing models, and
//! `avt`, that of asciinema, in release builds. Compares only the text that they show, because
//! their attributes differ.

use super::*;
use alacritty_terminal::event::VoidListener;
use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::{Column, Line as At};
use alacritty_terminal::term::cell::Flags;
use alacritty_terminal::term::{Config, Term};
use alacritty_terminal::vte::ansi::Processor;
use std::time::Instant;

/// Lines of history, as many as our model has.
const HISTORY: usize = 1000;
/// Generated streams that are compared.
const STREAMS: usize = 2000;
/// Terminals whose memory is measured together.
const MANY: usize = 20;

struct Window(Size);

impl Dimensions for Window {
    fn total_lines(&self) -> usize {
        self.screen_lines()
    }

    fn screen_lines(&self) -> usize {
        self.0.rows.into()
    }

    fn columns(&self) -> usize {
        self.0.cols.into()
    }
}

struct Other {
    term: Term<VoidListener>,
    parser: Processor,
}

impl Other {
    fn new(size: Size) -> Self {
        let config = Config { scrolling_history: HISTORY, ..Config::default() };
        Self { term: Term::new(config, &Window(size), VoidListener), parser: Processor::new() }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.parser.advance(&mut self.term, bytes);
    }

    /// The lines of the screen without trailing spaces.
    fn text(&self) -> Vec<String> {
        let grid = self.term.grid();
        let line = |y: usize| {
            let row = &grid[At(i32::try_from(y).expect("a row"))];
            let cells = (0..grid.columns()).map(|x| &row[Column(x)]);
            let seen = cells.filter(|cell| {
                !cell.flags.intersects(Flags::WIDE_CHAR_SPACER | Flags::LEADING_WIDE_CHAR_SPACER)
            });
            let text: String = seen
                .flat_map(|cell| {
                    std::iter::once(cell.c).chain(cell.zerowidth().into_iter().flatten().copied())
                })
                .collect();
            text.trim_end().to_owned()
        };
        (0..grid.screen_lines()).map(line).collect()
    }
}

/// The lines of our screen without trailing spaces.
fn text(screen: &mut Screen, size: Size) -> Vec<String> {
    let rows = usize::from(size.rows);
    let model = &mut screen.model;
    let shown = model.shown();
    let from = shown.lines.len() - rows.min(shown.lines.len());
    let lines: Vec<Vec<Cell>> =
        shown.lines.iter().skip(from).map(|line| line.cells().to_vec()).collect();
    let line = |cells: &Vec<Cell>| {
        let mut text = String::new();
        for (index, cell) in cells.iter().enumerate() {
            if cell.width() == 0 && index > 0 && cells[index - 1].width() == 2 {
                continue;
            }
            match (cell.char(), cell.cluster()) {
                (Some(c), _) => text.push(c),
                (None, Some(number)) => text += model.clusters.get(number).map_or("", |text| text),
                (None, None) => text.push(' '),
            }
        }
        text.trim_end().to_owned()
    };
    let mut all: Vec<String> = lines.iter().map(line).collect();
    all.resize(rows, String::new());
    all
}

/// A terminal of `avt`, which reads text: bytes are decoded first.
struct Avt {
    vt: avt::Vt,
    undecoded: Vec<u8>,
    rows: usize,
}

impl Avt {
    fn new(size: Size) -> Self {
        let mut builder = avt::Vt::builder();
        let vt = builder.size(size.cols.into(), size.rows.into()).scrollback_limit(HISTORY).build();
        Self { vt, undecoded: Vec::new(), rows: size.rows.into() }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.undecoded.extend_from_slice(bytes);
        let complete = crate::scan::complete_len(&self.undecoded);
        self.vt.feed_str(&String::from_utf8_lossy(&self.undecoded[..complete]));
        self.undecoded.drain(..complete);
    }

    fn text(&self) -> Vec<String> {
        let lines = self.vt.view().map(|line| line.text().trim_end().to_owned());
        let mut all: Vec<String> = lines.collect();
        all.resize(self.rows, String::new());
        all
    }
}

/// Throughput in MB/s, fed in parts of 4 KiB.
fn rate(bytes: &[u8], mut feed: impl FnMut(&[u8])) -> f64 {
    let start = Instant::now();
    bytes.chunks(4096).for_each(&mut feed);
    bytes.len() as f64 / start.elapsed().as_secs_f64() / 1e6
}

/// Resident memory of this process, in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("statm");
    status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("pages") * 4
}

/// Memory of one terminal, in KiB, averaged over many.
fn each<T>(make: impl Fn() -> T) -> usize {
    let before = resident();
    let all: Vec<T> = (0..MANY).map(|_| make()).collect();
    let after = resident();
    drop(all);
    after.saturating_sub(before) / MANY
}

#[test]
#[ignore = "a measurement, for release builds"]
fn beside_other_terminal_models() {
    let wide = Size { cols: 200, rows: 50 };
    let log = "2026-11-21T22:00:00 info request took 12 ms path=/v1/sandboxes\r\n".repeat(400_000);
    let seq: String = (1..=2_000_000).map(|n| format!("{n}\r\n")).collect();
    let mut inputs = vec![
        ("log".to_owned(), wide, log.into_bytes()),
        ("seq".to_owned(), wide, seq.into_bytes()),
    ];
    inputs.extend(
        recorded()
            .into_iter()
            .map(|(name, size, bytes)| (name, size, bytes.repeat((16 << 20) / bytes.len()))),
    );
    println!("| input | ours MB/s | alacritty_terminal MB/s | avt MB/s |\n|---|---|---|---|");
    for (name, size, bytes) in &inputs {
        let mut ours = Screen::new(*size);
        let mut other = Other::new(*size);
        let mut at = 0;
        let mut avt = Avt::new(*size);
        let alacritty = rate(bytes, |part| other.feed(part));
        let avt = rate(bytes, |part| avt.feed(part));
        let own = rate(bytes, |part| {
            ours.feed(part, at);
            at += part.len() as u64;
        });
        println!("| {name} | {own:.0} | {alacritty:.0} | {avt:.0} |");
    }
    let lines = |text: &str| format!("{text}\r\n").repeat(HISTORY + 200).into_bytes();
    println!(
        "\n| KiB a terminal, 200x50, {HISTORY} lines of | ours | alacritty_terminal | avt |\n|---|---|---|---|"
    );
    for (name, text) in [("20 characters", "x".repeat(20)), ("200 characters", "x".repeat(199))] {
        let bytes = lines(&text);
        let own = each(|| fed(wide, &[&bytes]));
        let theirs = each(|| {
            let mut other = Other::new(wide);
            other.feed(&bytes);
            other
        });
        let avt = each(|| {
            let mut avt = Avt::new(wide);
            avt.feed(&bytes);
            avt
        });
        println!("| {name} | {own} | {theirs} | {avt} |");
    }
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut alacritty_differs = 0;
    let mut avt_differs = 0;
    for _ in 0..STREAMS {
        let bytes = stream().new_tree(&mut runner).expect("a stream").current();
        let mut other = Other::new(SMALL);
        other.feed(&bytes);
        let mut avt = Avt::new(SMALL);
        avt.feed(&bytes);
        let ours = text(&mut fed(SMALL, &[&bytes]), SMALL);
        alacritty_differs += usize::from(other.text() != ours);
        avt_differs += usize::from(avt.text() != ours);
    }
    println!("\nscreens whose text differs from ours, of {STREAMS} made-up streams:");
    println!("alacritty_terminal {alacritty_differs}, avt {avt_differs}");
    for (name, size, bytes) in recorded() {
        let mut other = Other::new(size);
        other.feed(&bytes);
        let mut avt = Avt::new(size);
        avt.feed(&bytes);
        let ours = text(&mut fed(size, &[&bytes]), size);
        let alacritty = other.text() == ours;
        let avt = avt.text() == ours;
        println!("{name}: the same text in alacritty_terminal: {alacritty}, in avt: {avt}");
    }
}
