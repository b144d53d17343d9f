//! Output of a hostile program: memory and time stay bounded, and the agent survives.

use super::*;

const WIDE: Size = Size { cols: 1000, rows: 400 };

/// Promises: Z16.
#[test]
fn unterminated_sequences_are_not_stored() {
    for begin in ["\x1b]2;", "\x1bP", "\x1b_", "\x1b[", "\x1b]52;c;", "\u{9d}0;"] {
        let mut screen = fed(SMALL, &[b"before", begin.as_bytes()]);
        for _ in 0..256 {
            screen.feed(&[b'1'; 4096], 0);
        }
        assert!(screen.pending.len() <= 9 * 1024, "{begin:?} keeps {}", screen.pending.len());
        let snapshot = screen.snapshot();
        assert!(snapshot.len() < 10 * 1024);
        // Output behind its end has effect, here and after the snapshot.
        let mut back = fed(SMALL, &[&snapshot]);
        for screen in [&mut screen, &mut back] {
            screen.feed(b"\x1b\\after", 0);
            assert!(
                seen(std::mem::replace(screen, Screen::new(SMALL))).contains("beforeafter"),
                "{begin:?}"
            );
        }
    }
}

/// Promises: Z16.
#[test]
fn marks_links_titles_and_keyboards_are_bounded() {
    let mut screen = Screen::new(WIDE);
    let marks = "\u{301}\u{302}\u{303}\u{304}\u{305}".repeat(100_000);
    screen.feed(format!("e{marks}").as_bytes(), 0);
    for n in 0..30_000_u32 {
        let mark = |add: u32| char::from_u32(0x300 + (n / 7 + add) % 0x60).unwrap_or('\u{300}');
        let letter = char::from_u32(0x4e00 + n % 20_000).unwrap_or('x');
        screen.feed(
            format!(
                "\x1b]8;;http://host/{n}\x07{letter}{}{}\x1b]8;;\x07\x1b[22t\x1b[>1u",
                mark(0),
                mark(n)
            )
            .as_bytes(),
            0,
        );
    }
    let model = &screen.model;
    assert!(model.titles.len() <= 16 && model.keys[0].stack.len() <= 16);
    assert!(model.extended_styles.len() <= 16 * 1024 && model.clusters.len() <= 16 * 1024);
    screen.feed(format!("\x1b]2;{}\x07", "t".repeat(5000)).as_bytes(), 0);
    assert_eq!(screen.title().len(), 256);
}

/// Promises: Z16.
#[test]
fn the_history_is_bounded_in_lines_and_cells() {
    for (size, most) in
        [(Size { cols: 80, rows: 24 }, 1024), (WIDE, 600), (Size { cols: 1, rows: 1 }, 1001)]
    {
        let mut screen = Screen::new(size);
        screen.feed("x".repeat(size.cols.into()).as_bytes(), 0);
        screen.feed(&b"line\r\n".repeat(5000), 0);
        assert_eq!(screen.model.primary.lines.len(), most);
        screen.resize(Size { cols: 1000, rows: 2 });
        assert!(screen.model.primary.lines.len() <= 202);
    }
}

/// Promises: Z16.
#[test]
fn huge_numbers_cost_no_more_than_a_screen() {
    let mut screen = Screen::new(Size { cols: 200, rows: 50 });
    for last in "@ABCDEFGHIJKLMPSTXZ`abdefghijlmnqrstu".chars() {
        for _ in 0..20 {
            screen.feed(
                format!("xyz\x1b[4294967295;4294967295{last}\x1b[99999999999999999999{last}")
                    .as_bytes(),
                0,
            );
        }
    }
    assert!(screen.snapshot().len() < 1024 * 1024);
}

/// Promises: Z16.
#[test]
fn a_fault_in_the_model_leaves_an_empty_screen_and_a_living_agent() {
    let mut screen = fed(SMALL, &[b"\x1b]2;name\x07text"]);
    screen.catch_panic(|_| panic!("a fault, on purpose"));
    assert_eq!(screen.title(), "name");
    screen.feed(b"on", 0);
    assert!(seen(screen).contains("screen"));
}
