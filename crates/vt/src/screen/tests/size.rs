//! Resizing: wrapped text is reflowed, and the cursor stays with its text.

use super::*;

fn text(screen: &Screen) -> Vec<String> {
    let lines = screen.model.primary.lines.iter();
    lines.map(|line| cells(&screen.model, line).replace('_', " ")).collect()
}

#[test]
fn wrapped_text_is_joined_in_a_wider_window() {
    let mut screen = fed(SMALL, &[b"0123456789012345678901234567890123456789abc\r\n$ "]);
    screen.resize(Size { cols: 50, rows: 6 });
    assert_eq!(text(&screen)[..2], ["0123456789012345678901234567890123456789abc", "$ "]);
    screen.resize(Size { cols: 10, rows: 6 });
    assert_eq!(
        text(&screen)[..6],
        ["0123456789", "0123456789", "0123456789", "0123456789", "abc", "$ "]
    );
    screen.feed(b"x", 0);
    assert_eq!(text(&screen)[5], "$ x");
}

#[test]
fn a_lower_window_keeps_the_cursor_and_what_is_above_it() {
    let mut screen = fed(SMALL, &[b"1\r\n2\r\n3\r\n4\r\n5\r\n6\r"]);
    screen.resize(Size { cols: 20, rows: 3 });
    assert_eq!((screen.model.primary.history_len(), screen.model.primary.y), (3, 2));
    screen.resize(Size { cols: 20, rows: 5 });
    assert_eq!((screen.model.primary.history_len(), screen.model.primary.y), (1, 4));
}

proptest! {
    /// Promises: Z15.
    #[test]
    fn no_size_breaks_a_screen(bytes in stream(), sizes in proptest::collection::vec((1..60_u16, 1..20_u16), 1..6)) {
        let mut screen = Screen::new(SMALL);
        for (cols, rows) in sizes {
            let size = Size { cols, rows };
            screen.feed(&bytes, 0);
            screen.resize(size);
            let model = &screen.model;
            prop_assert_eq!(model.title.contains("kept"), false);
            for buffer in [Some(&model.primary), model.alternate.as_deref()].into_iter().flatten() {
                prop_assert_eq!((buffer.cols, buffer.rows), (usize::from(cols).max(2), usize::from(rows)));
                prop_assert!(buffer.lines.len() >= buffer.rows && buffer.y < buffer.rows && buffer.x <= buffer.cols);
                prop_assert!(buffer.lines.iter().all(|line| line.cells().len() <= buffer.cols));
            }
            let snapshot = screen.snapshot();
            prop_assert!(!String::from_utf8_lossy(&snapshot).contains("the screen was lost"));
            let mut again = Screen::new(size);
            again.feed(&snapshot, 0);
            let one = seen(fed_again(&screen, size));
            let two = seen(again);
            prop_assert_eq!(one, two);
        }
    }
}

/// The screen of a terminal that was fed the snapshot.
fn fed_again(screen: &Screen, size: Size) -> Screen {
    let first = crate::snapshot::draw(&screen.model);
    let mut again = fed(size, &[&first]);
    again.feed(&screen.safe_pending(), 0);
    again
}
