//! A client that is disconnected at any moment and reconnects misses nothing and receives nothing
//! twice.

use super::*;
use proptest::prelude::*;

fn who(owner: &str, id: &str) -> Rc<CommandKey> {
    Rc::new(CommandKey { owner: owner.into(), id: id.into() })
}

fn ended(exit: CommandExit, from: [u64; 2]) -> EndedCommand {
    EndedCommand { exit, from }
}

fn view(owner: &str, watch: bool) -> LogFilter {
    LogFilter { owner: owner.into(), watch }
}

/// Everything that a client received, with the output joined and the exits by number.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
struct Seen {
    out: Vec<u8>,
    err: Vec<u8>,
    exits: Vec<u64>,
    gaps: Vec<(u8, u64, u64)>,
    at: ShellPosition,
}

impl Seen {
    fn take(&mut self, item: Item<'_>) {
        match item {
            Item::Output { stream: STDOUT, offset, bytes, .. } => {
                assert_eq!(offset, self.at.out);
                self.at.out += bytes.len() as u64;
                self.out.extend(bytes);
            }
            Item::Output { offset, bytes, .. } => {
                assert_eq!(offset, self.at.err);
                self.at.err += bytes.len() as u64;
                self.err.extend(bytes);
            }
            Item::Message(AgentResponse::Exit(exit)) => {
                self.at.seq = exit.seq;
                self.exits.push(exit.seq);
            }
            Item::Message(AgentResponse::Gap { stream, from, to }) => {
                self.gaps.push((stream, from, to));
                if stream == STDOUT { self.at.out = to } else { self.at.err = to }
            }
            Item::Message(_) => {}
        }
    }
}

proptest! {
    #[test]
    fn coming_back_by_since_gives_every_byte_once(
        acts in proptest::collection::vec((0..6_u8, 1..40_usize), 1..80),
    ) {
        let mut log = ShellLog::default();
        let whose = who("me", "a");
        let mut whole = Seen::default();
        let mut cut = Seen::default();
        let mut stay = log.cursor_at_end();
        let mut come = log.cursor_at_end();
        let view = view("me", false);
        for (act, count) in acts {
            match act {
                0 => log.push_output(STDOUT, Some(&whose), &vec![count as u8; count]),
                1 => log.push_output(STDERR, None, &vec![count as u8; count]),
                2 => log.push_event(LogEvent::Exit(whose.clone(), ended(CommandExit::default(), [0; 2]))),
                3 => while let Some(item) = log.next(&mut stay, &view) { whole.take(item) },
                4 => for _ in 0..count % 3 {
                    if let Some(item) = log.next(&mut come, &view) { cut.take(item) }
                },
                _ => come = log.cursor_to_resume_from(cut.at),
            }
        }
        while let Some(item) = log.next(&mut stay, &view) { whole.take(item) }
        while let Some(item) = log.next(&mut come, &view) { cut.take(item) }
        prop_assert_eq!(whole, cut);
    }
}

#[test]
fn who_falls_off_is_told_which_bytes_and_still_hears_of_the_exits() {
    let mut log = ShellLog::default();
    let mut place = log.cursor_at_end();
    let whose = who("me", "a");
    let chunk = vec![7; 64 * 1024];
    for _ in 0..40 {
        log.push_owned(STDOUT, Some(&whose), chunk.clone());
        let exit = CommandExit { out: chunk.len() as u64, ..CommandExit::default() };
        log.push_event(LogEvent::Exit(
            whose.clone(),
            ended(exit, [log.end()[0] - chunk.len() as u64, 0]),
        ));
    }
    let mut seen = Seen::default();
    while let Some(item) = log.next(&mut place, &view("me", false)) {
        seen.take(item);
    }
    assert_eq!(seen.gaps, [(STDOUT, 0, 24 * 65536)]);
    assert_eq!(seen.out.len(), LOG_BYTES_MAX);
    assert_eq!(seen.exits, (1..=40).collect::<Vec<_>>());
}

#[test]
fn others_are_seen_only_by_a_watcher_and_under_their_owner() {
    let mut log = ShellLog::default();
    let mut plain = log.cursor_at_end();
    let mut watcher = log.cursor_at_end();
    log.push_output(STDOUT, Some(&who("you", "b")), b"theirs");
    log.push_output(STDOUT, None, b"background");
    assert!(matches!(
        log.next(&mut plain, &view("me", false)),
        Some(Item::Output { offset: 6, bytes: b"background", .. })
    ));
    let Some(Item::Output { id, bytes, .. }) = log.next(&mut watcher, &view("me", true)) else {
        panic!("nothing for the watcher");
    };
    assert_eq!((id.as_str(), bytes), ("you/b", b"theirs".as_slice()));
}

#[test]
fn what_grows_after_it_was_read_is_read_on() {
    let mut log = ShellLog::default();
    let mut place = log.cursor_at_end();
    let view = view("me", false);
    log.push_output(STDOUT, None, b"ab");
    assert!(matches!(log.next(&mut place, &view), Some(Item::Output { bytes: b"ab", .. })));
    assert!(log.next(&mut place, &view).is_none());
    log.push_output(STDOUT, None, b"cd");
    assert!(matches!(
        log.next(&mut place, &view),
        Some(Item::Output { bytes: b"cd", offset: 2, .. })
    ));
}

/// Promises: S13.
#[test]
fn who_watches_is_told_the_beginning_of_a_commands_text() {
    let mut log = ShellLog::default();
    let mut place = log.cursor_at_end();
    let mut other = log.cursor_at_end();
    let text = format!("{}{}", "x".repeat(TEXT_BYTES_MAX - 1), "ä and more");
    log.started(who("me", "a"), &text);
    let Some(Item::Message(message)) = log.next(&mut place, &view("you", true)) else { panic!() };
    let command = "x".repeat(TEXT_BYTES_MAX - 1);
    assert_eq!(message, AgentResponse::Started { id: "me/a".into(), command: Some(command) });
    let Some(Item::Message(message)) = log.next(&mut other, &view("me", false)) else { panic!() };
    assert_eq!(message, AgentResponse::Started { id: "a".into(), command: None });
}

/// Promises: S13.
#[test]
fn texts_of_commands_count_as_what_is_kept() {
    let mut log = ShellLog::default();
    for number in 0..LOG_ENTRIES_MAX * 2 {
        log.started(who("me", &number.to_string()), &"x".repeat(TEXT_BYTES_MAX));
        assert!(log.bytes <= LOG_BYTES_MAX);
    }
    for _ in 0..LOG_ENTRIES_MAX {
        log.push_output(STDOUT, None, &[b'.'; JOINED_BYTES_MAX + 1]);
    }
    assert!(log.bytes <= LOG_BYTES_MAX && log.bytes > LOG_BYTES_MAX / 2);
}
