//! Replies of terminals, and keys that look like them.

use super::*;
use crate::reply_filter::{ClientInput, ReplyFilter, replies};

/// The input that passes when a client sends these parts.
fn through(filter: &mut ReplyFilter, parts: &[&[u8]]) -> Vec<u8> {
    let mut input = ClientInput::default();
    parts.iter().flat_map(|part| filter.filter(&mut input, part)).collect()
}

/// A filter after the queries in some output.
fn asked(output: &[u8]) -> ReplyFilter {
    let mut screen = fed(SMALL, &[output]);
    let mut filter = ReplyFilter::default();
    screen.take_queries().iter().for_each(|query| filter.expect_reply(query));
    filter
}

const PAIRS: [(&[u8], &[u8]); 20] = [
    (b"\x1b[6n", b"\x1b[24;80R"),
    (b"\x1b[?6n", b"\x1b[?24;80R"),
    (b"\x1b[5n", b"\x1b[0n"),
    (b"\x1b[?15n", b"\x1b[?13n"),
    (b"\x1b[c", b"\x1b[?1;2c"),
    (b"\x1bZ", b"\x1b[?62;22c"),
    (b"\x1b[>c", b"\x1b[>0;276;0c"),
    (b"\x1b[=c", b"\x1bP!|00000000\x1b\\"),
    (b"\x1b[?2026$p", b"\x1b[?2026;2$y"),
    (b"\x1b[4$p", b"\x1b[4;2$y"),
    (b"\x1b[>q", b"\x1bP>|xterm(380)\x1b\\"),
    (b"\x1b]11;?\x07", b"\x1b]11;rgb:0000/0000/0000\x07"),
    (b"\x1b]4;7;?\x1b\\", b"\x1b]4;7;rgb:ffff/ffff/ffff\x1b\\"),
    (b"\x1b[18t", b"\x1b[8;24;80t"),
    (b"\x1b[14t", b"\x1b[4;600;800t"),
    (b"\x1bP$qm\x1b\\", b"\x1bP1$r0m\x1b\\"),
    (b"\x1bP+q544e\x1b\\", b"\x1bP1+r544e=787465726d\x1b\\"),
    (b"\x1b[?u", b"\x1b[?0u"),
    (b"\x1b[?4m", b"\x1b[>4;0m"),
    (b"\x1b[?1;1;0S", b"\x1b[?1;0;256S"),
];

const KEYS: [&[u8]; 20] = [
    b"ls -la\r",
    b"\x1b",
    b"\x1b[",
    b"\x1b]",
    b"\x1bP",
    b"\x1b[A",
    b"\x1bOR",
    b"\x1b[1;5C",
    b"\x1b[1;2R",
    b"\x1b[1;8R",
    b"\x1b[I",
    b"\x1b[O",
    b"\x1b[<0;10;20M",
    b"\x1b[M !!",
    b"\x1b[97;5u",
    b"\x1b[97;5:3u",
    b"\x1b[3~",
    b"\x1b[200~\x1b[24;80R\x1b]52;c;eA==\x07\x1b[201~",
    b"\x1b[?997;1n",
    "h\u{e9}\u{6f22}\u{1f600}".as_bytes(),
];

/// Promises: Z17.
#[test]
fn a_reply_passes_once_and_only_for_a_query() {
    for (question, answer) in PAIRS {
        let shown = String::from_utf8_lossy(answer).replace('\x1b', "ESC ");
        assert_eq!(through(&mut ReplyFilter::default(), &[answer]), b"", "{shown} to nothing");
        let mut filter = asked(question);
        assert_eq!(through(&mut filter, &[answer]), answer, "{shown} to its question");
        assert_eq!(through(&mut filter, &[answer]), b"", "{shown} again");
        for cut in 3..answer.len() {
            let (one, two) = answer.split_at(cut);
            assert_eq!(
                through(&mut ReplyFilter::default(), &[one, two]),
                b"",
                "{shown} in two parts, {cut}"
            );
        }
    }
}

/// Promises: Z17.
#[test]
fn keys_come_through_as_they_are() {
    for key in KEYS {
        for other in KEYS {
            let typed = [key, other].concat();
            // An escape key and then a bracket differ from Alt with a bracket.
            if key.len() <= 2 && key[0] == 0x1b {
                continue;
            }
            assert_eq!(through(&mut ReplyFilter::default(), &[key, other]), typed);
            assert_eq!(through(&mut ReplyFilter::default(), &[&typed]), typed);
        }
        assert_eq!(through(&mut ReplyFilter::default(), &[key]), key);
    }
}

/// Promises: Z17.
#[test]
fn the_clipboard_and_titles_are_never_reported() {
    for answer in [&b"\x1b]52;c;cm0gLXJmIC8K\x07"[..], b"\x1b]lrm -rf /\x1b\\", b"\x1b]Licon\x1b\\"]
    {
        let mut filter = asked(b"\x1b]52;c;?\x07\x1b[21t\x1b[20t");
        assert_eq!(through(&mut filter, &[answer]), b"");
    }
}

/// Promises: Z17.
#[test]
fn the_models_answers_have_no_text_that_a_program_chose() {
    let mut screen = fed(SMALL, &[b"\x1b]2;; rm -rf /\x07\x1b[21t\x1b[20t\x1bP$qm\x1b\\\x1bP+q544e\x1b\\\x1b]52;c;?\x07\x1b]4;300;?\x07\x05"]);
    let said: Vec<u8> =
        screen.take_queries().into_iter().flat_map(|query| query.default_reply).collect();
    assert_eq!(said, b"");
    let mut screen = fed(SMALL, &[b"\x1b]11;#123456\x07ab\x1b[6n\x1b[5n\x1b]11;?\x07\x1b[c"]);
    let said: Vec<u8> =
        screen.take_queries().into_iter().flat_map(|query| query.default_reply).collect();
    assert_eq!(said, b"\x1b[1;3R\x1b[0n\x1b]11;rgb:1212/3434/5656\x1b\\\x1b[?1;2c");
}

#[test]
fn a_query_is_dropped_after_sixteen_newer_ones() {
    let mut filter = asked(&[&b"\x1b[6n"[..], &b"\x1b[5n".repeat(16)].concat());
    assert_eq!(through(&mut filter, &[b"\x1b[1;1R"]), b"");
    assert_eq!(through(&mut filter, &[b"\x1b[0n"]), b"\x1b[0n");
}

#[test]
fn the_last_query_is_known_by_its_end() {
    let screen = fed(SMALL, &[b"ab\x1b[", b"6n", b"cd"]);
    assert_eq!(screen.last_query_end(), 6);
    assert_eq!(fed(SMALL, &[b"plain"]).last_query_end(), 0);
}

proptest! {
    /// Promises: Z17.
    #[test]
    fn input_that_is_no_reply_is_never_changed(parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 1..5)) {
        let typed = parts.concat();
        let mut input = ClientInput::default();
        let mut out = ReplyFilter::default().filter(&mut input, &typed);
        out.extend_from_slice(&input.partial());
        let mut left = typed.clone();
        for answer in replies(&typed).into_iter().rev() {
            left.drain(answer);
        }
        prop_assert_eq!(out, left);
    }

    #[test]
    fn text_without_escapes_comes_through_wherever_it_is_cut(parts in proptest::collection::vec("[^\u{1b}]{0,20}", 1..6)) {
        let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
        prop_assert_eq!(through(&mut ReplyFilter::default(), &parts), parts.concat());
    }
}
