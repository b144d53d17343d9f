//! Which answers are still wanted. Every attached client answers what a program asks, and one
//! that draws an old screen answers again: only the first answer to each question may reach the
//! program. What the others say would be typed into it.

use super::ask::Asked;
use std::collections::VecDeque;

/// Questions that may be open at a time: the oldest is given up for a newer one.
const OPEN_MAX: usize = 16;
/// The longest answer, in bytes. What is longer is no answer.
const ANSWER_BYTES_MAX: usize = 4096;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Where the cursor is: `CSI 6 n`.
    Cursor,
    /// The same with a page: `CSI ? 6 n`.
    PrivateCursor,
    /// Whether all is well: `CSI 5 n`.
    Status,
    /// Printers, locators, colour schemes: `CSI ? n n`.
    PrivateStatus,
    /// What the terminal is: `CSI c`, `CSI > c`, `CSI = c`.
    Primary,
    Secondary,
    Tertiary,
    /// How a mode is switched: `CSI ? n $ p`.
    Mode,
    /// Name and version: `CSI > q`.
    Version,
    /// Sizes of window and cells: `CSI 14 t` and its like.
    Size,
    /// `OSC 4`, `10`, `11`, `12` with `?`.
    Colour,
    /// A setting: `DCS $ q`.
    Setting,
    /// What a terminal can: `DCS + q`.
    Capability,
    /// Keyboard modes: `CSI ? u`.
    Keyboard,
    /// `CSI ? 4 m`.
    OtherKeys,
    /// `CSI ? n S`.
    Graphics,
    /// `CSI x`, `CSI n $ w`.
    Parameters,
    /// Never asked, so never answered: clipboard and titles.
    Never,
}

/// What one client is typing.
#[derive(Debug, Default)]
pub(crate) struct Typist {
    /// The beginning of what may be an answer.
    held: Vec<u8>,
    /// It pastes: nothing in it is an answer.
    pastes: bool,
    /// There was more than answers, and news of the window's focus, in what it typed last.
    pub(crate) keys: bool,
}

#[cfg(test)]
impl Typist {
    /// What waits for more.
    pub(super) fn held(&self) -> Vec<u8> {
        self.held.clone()
    }
}

/// The open questions of one terminal. For each client a [`Typist`] is kept:
///
/// ```text
/// screen.feed(…);
/// for asked in screen.answers() {
///     if somebody_may_type { questions.asked(&asked) } else { type_it(asked.answer) }
/// }
/// let keys = questions.filter(&mut client.typist, typed);
/// ```
#[derive(Debug, Default)]
pub(crate) struct Questions {
    open: VecDeque<Kind>,
}

/// What stands at the beginning of something typed.
enum Typed {
    /// Keys, so many bytes.
    Keys(usize),
    /// An answer.
    Answer(Kind, usize),
    /// Perhaps an answer, when more comes.
    Perhaps,
}

impl Questions {
    /// A program has asked something, and clients were told.
    pub(crate) fn asked(&mut self, asked: &Asked) {
        if self.open.len() >= OPEN_MAX {
            self.open.pop_front();
        }
        self.open.push_back(asked.kind);
    }

    /// What a client typed, without answers that nobody waits for. Of an answer that is not
    /// complete yet the beginning is held until the client types on.
    #[must_use]
    pub(crate) fn filter(&mut self, typist: &mut Typist, typed: &[u8]) -> Vec<u8> {
        typist.keys = false;
        let held = std::mem::take(&mut typist.held);
        let joined;
        let mut rest = if held.is_empty() {
            typed
        } else {
            joined = [held.as_slice(), typed].concat();
            joined.as_slice()
        };
        let mut out = Vec::with_capacity(rest.len());
        while !rest.is_empty() {
            if typist.pastes {
                let end = find(rest, b"\x1b[201~").map(|at| at + 6);
                typist.pastes = end.is_none();
                typist.keys = true;
                out.extend_from_slice(&rest[..end.unwrap_or(rest.len())]);
                rest = &rest[end.unwrap_or(rest.len())..];
                // The end of a paste may be cut, too.
                if typist.pastes {
                    let cut = (1..6).rev().find(|cut| out.ends_with(&b"\x1b[201~"[..*cut]));
                    typist.held = out.split_off(out.len() - cut.unwrap_or(0));
                }
                continue;
            }
            match look(rest) {
                Typed::Keys(count) => {
                    typist.pastes = &rest[..count] == b"\x1b[200~";
                    typist.keys |= !matches!(&rest[..count], b"\x1b[I" | b"\x1b[O");
                    out.extend_from_slice(&rest[..count]);
                    rest = &rest[count..];
                }
                Typed::Answer(kind, count) => {
                    let key = is_key(&rest[..count]);
                    let wanted = self.wanted(kind);
                    typist.keys |= key && !wanted;
                    if wanted || key {
                        out.extend_from_slice(&rest[..count]);
                    }
                    rest = &rest[count..];
                }
                Typed::Perhaps if rest.len() > ANSWER_BYTES_MAX => {
                    out.extend_from_slice(rest);
                    rest = &[];
                }
                Typed::Perhaps => {
                    typist.held = rest.to_vec();
                    rest = &[];
                }
            }
        }
        out
    }

    /// Whether somebody waits for such an answer; then not any more.
    fn wanted(&mut self, kind: Kind) -> bool {
        let found = self.open.iter().position(|open| *open == kind);
        found.is_some_and(|index| self.open.remove(index).is_some())
    }
}

/// F3 with modifiers looks like the place of a cursor in the first row.
fn is_key(typed: &[u8]) -> bool {
    matches!(typed, [0x1b, b'[', b'1', b';', b'2'..=b'8', b'R'])
}

/// Looks at what stands first.
fn look(typed: &[u8]) -> Typed {
    if typed[0] != 0x1b {
        let plain = typed.iter().position(|byte| *byte == 0x1b);
        return Typed::Keys(plain.unwrap_or(typed.len()));
    }
    match typed.get(1) {
        Some(b'[') => look_csi(typed),
        Some(b']') => look_text(typed, osc_kind),
        Some(b'P') => look_text(typed, dcs_kind),
        // An escape, or a key with Alt.
        _ => Typed::Keys(1),
    }
}

fn look_csi(typed: &[u8]) -> Typed {
    // Mouse reports of the oldest kind have three bytes of any value behind them.
    if typed.get(2) == Some(&b'M') {
        return Typed::Keys(typed.len().min(6));
    }
    let Some(step) = typed[2..].iter().position(|byte| !(0x20..=0x3f).contains(byte)) else {
        // `ESC [` alone is a key with Alt, and goes at once.
        return if typed.len() > 2 && typed.len() < 64 { Typed::Perhaps } else { Typed::Keys(2) };
    };
    let (body, last) = (&typed[2..2 + step], typed[2 + step]);
    if !(0x40..=0x7e).contains(&last) {
        return Typed::Keys(2);
    }
    let end = 3 + step;
    csi_kind(body, last).map_or(Typed::Keys(end), |kind| Typed::Answer(kind, end))
}

/// Which question such a sequence answers, when it is an answer at all.
fn csi_kind(body: &[u8], last: u8) -> Option<Kind> {
    let plain = body.iter().all(|byte| byte.is_ascii_digit() || *byte == b';');
    let (mark, rest) = body.split_first().map_or((0, body), |(mark, rest)| (*mark, rest));
    let numbers = rest.iter().all(|byte| byte.is_ascii_digit() || *byte == b';' || *byte == b':')
        && !rest.is_empty();
    match last {
        b'R' if plain && body.contains(&b';') => Some(Kind::Cursor),
        b'R' if mark == b'?' && numbers => Some(Kind::PrivateCursor),
        b'n' if plain && matches!(body, b"0" | b"3") => Some(Kind::Status),
        // A change of the colour scheme is told unasked, too.
        b'n' if mark == b'?' && numbers && !rest.starts_with(b"997;") => Some(Kind::PrivateStatus),
        b'c' if mark == b'?' && numbers => Some(Kind::Primary),
        b'c' if mark == b'>' && numbers => Some(Kind::Secondary),
        b'y' if body.ends_with(b"$") => Some(Kind::Mode),
        // 48 is told unasked, when a window changes.
        b't' if plain && body.contains(&b';') && !body.starts_with(b"48;") => Some(Kind::Size),
        b't' if matches!(body, b"1" | b"2") => Some(Kind::Size),
        b'u' if mark == b'?' && numbers => Some(Kind::Keyboard),
        b'm' if mark == b'>' && numbers => Some(Kind::OtherKeys),
        b'S' if mark == b'?' && numbers => Some(Kind::Graphics),
        b'x' if plain && body.contains(&b';') => Some(Kind::Parameters),
        _ => None,
    }
}

/// Texts end with `ESC \`, or with a bell.
fn look_text(typed: &[u8], kind: fn(&[u8]) -> Option<Kind>) -> Typed {
    let stop = typed[2..].iter().position(|byte| *byte < 0x20 || *byte == 0x7f).map(|at| at + 2);
    let body = &typed[2..stop.unwrap_or(typed.len())];
    let Some(kind) = kind(body) else {
        return if stop.is_none() && begins(body) { Typed::Perhaps } else { Typed::Keys(2) };
    };
    match stop.map(|at| (typed[at], typed.get(at + 1), at)) {
        None => Typed::Perhaps,
        Some((0x07, _, at)) => Typed::Answer(kind, at + 1),
        Some((0x1b, Some(b'\\'), at)) => Typed::Answer(kind, at + 2),
        Some((0x1b, None, _)) => Typed::Perhaps,
        _ => Typed::Keys(2),
    }
}

/// So short a text may still become an answer. An empty one is a key with Alt.
fn begins(body: &[u8]) -> bool {
    (1..=3).contains(&body.len()) && body.iter().all(|byte| b"0123456789;$+>!".contains(byte))
}

fn osc_kind(body: &[u8]) -> Option<Kind> {
    let number = body.iter().position(|byte| *byte == b';').map(|at| &body[..at]);
    match (number, body.first()) {
        (
            Some(
                b"4" | b"5" | b"10" | b"11" | b"12" | b"13" | b"14" | b"15" | b"16" | b"17" | b"19"
                | b"21",
            ),
            _,
        ) => Some(Kind::Colour),
        (Some(b"52"), _) | (_, Some(b'l' | b'L')) => Some(Kind::Never),
        _ => None,
    }
}

fn dcs_kind(body: &[u8]) -> Option<Kind> {
    match body {
        [b'>', b'|', ..] => Some(Kind::Version),
        [b'!', b'|', ..] => Some(Kind::Tertiary),
        [b'0' | b'1', b'$', b'r', ..] => Some(Kind::Setting),
        [b'0' | b'1', b'+', b'r', ..] => Some(Kind::Capability),
        [b'0'..=b'9', b'$', b'u', ..] => Some(Kind::Parameters),
        _ => None,
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// Where each answer in some text stands: for tests.
#[cfg(test)]
pub(super) fn answers(typed: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < typed.len() {
        match look(&typed[at..]) {
            Typed::Keys(count) => at += count,
            Typed::Answer(_, count) => {
                out.push(at..at + count);
                at += count;
            }
            Typed::Perhaps => break,
        }
    }
    out
}
