//! Regressions that property tests and comparisons found.

use super::*;

/// The first row of a small screen that was fed this stream, and its modes.
fn first_row(bytes: &[u8]) -> String {
    let screen = fed(SMALL, &[bytes]);
    cells(&screen.model, &screen.model.primary.lines[0])
}

/// Promises: Z15.
#[test]
fn what_breaks_a_sequence_is_what_breaks_it_in_xterm_js() {
    let streams: &[(&[u8], &str)] = &[
        // Control characters in an aborted string are not executed.
        (b"ab\x1bP+q\r\n\x18cd", "abcd"),
        (b"ab\x1b]2;t\r\n\x18cd", "abcd"),
        // Those within a control sequence are, and those before its introducer is complete.
        (b"ab\x1b[3\r1\x18cd", "cd"),
        (b"ab\x1b\r[31mcd", "<1000001/0/0>cd"),
        (b"ab\x1b[\x00?25lcd", "abcd"),
        // Invalid bytes are ignored; characters end a sequence.
        (b"ab\x1b[\xff1\xc3Ccd", "ab·cd"),
        ("ab\x1b[\u{6f22}1Ccd".as_bytes(), "ab1Ccd"),
        ("ab\x1b]2;\u{6f22}\u{9b}2Ccd".as_bytes(), "ab··cd"),
        ("ab\x1b^\u{6f22}cd".as_bytes(), "abcd"),
    ];
    for (bytes, shown) in streams {
        assert_eq!(first_row(bytes), *shown, "{:?}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn a_frame_that_is_not_complete_is_shown_with_what_completes_it() {
    let mut screen = fed(SMALL, &[b"\x1b[?2026hhalf"]);
    assert!(screen.snapshot().starts_with(b"\x1bc\x1b[?2026h"));
    screen.feed(b"\x1b[?2026l", 0);
    assert!(!screen.snapshot().windows(8).any(|window| window == b"\x1b[?2026h"));
}

#[test]
fn numbers_that_name_no_cursor_only_say_whether_it_blinks() {
    for (number, shape) in [("3", 3), ("28", 4), ("27", 3), ("0", 0), ("28", 8), ("27", 7), ("", 0)]
    {
        let mut screen = fed(SMALL, &[if shape > 6 { b"" } else { b"\x1b[3 q" }]);
        screen.feed(format!("\x1b[{number} q").as_bytes(), 0);
        assert_eq!(screen.model.modes.cursor_shape, shape, "{number}");
    }
}

/// Streams that property tests found, and where they were cut.
/// Promises: Z15.
#[test]
fn found_regressions_stay_fixed() {
    let found: &[(&str, &str)] = &[
        // A lone combining mark behind the last column joined the space that moved the cursor
        // there.
        ("01234567890123456789\x1b[ @", "\u{301}a"),
        ("01234567890123456789\x1b[0;10 @\u{301}", "a"),
        // Keyboard modes of the alternate screen were lost while it was hidden.
        ("\x1b[?1047h\x1b[>u\x1b[?1047l", "\x1b[?1047hx"),
        // Cells that a wide character left empty came back without its style.
        ("0123456789012345678\x1b[1m\u{6f22}\x1b[1K", "x"),
        ("\x1b[1m0123456789012345678\x1b[1J\u{6f22}0\x1b[m", "x"),
        ("\x1b[7m\u{6f22}\u{6f22}\x1b[4m\x1b[2Gx\x1b[3Gy\x1b[m", "x"),
        // A combining mark joins across a delete, and behind eight others.
        ("0 \x7f", "\u{301}"),
        ("e\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}", "\u{302}x"),
        // The first line continues one that has left the history.
        ("\x1b[?47h01234567890123456789ab\x1b[5B\n", "\x1b[H\x1bM"),
        ("01234567890123456789ab\x1b[5B\n\x1b[3J", "\x1b[H\x1bM"),
        // The cursor is behind an empty last column.
        ("0123456789012345678\x1b[65535;0@\x1b[0 @9", "\x1b[0 @"),
        ("\x1b[4h0123456789\x1b[5G\u{6f22}", "\u{301}\x1b[3b"),
    ];
    for (before, after) in found {
        let bytes = [before.as_bytes(), after.as_bytes()].concat();
        (0..=bytes.len()).for_each(|cut| assert_same(SMALL, &bytes, cut));
    }
}
