//! What programs ask of a terminal, and what the model answers: what xterm.js says, so that
//! programs see one kind of terminal whether somebody watches or not. No answer contains a text
//! that a program has chosen.

use super::csi::Csi;
use super::model::Model;
use super::modes::Mouse;
use super::osc::SPECIAL;
use super::questions::Kind;

/// A question, and the model's answer to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(super) kind: Kind,
    /// What is typed when nobody else answers; empty where the model has no answer.
    pub(crate) answer: Vec<u8>,
}

impl Asked {
    fn new(kind: Kind, answer: impl Into<Vec<u8>>) -> Self {
        Self { kind, answer: answer.into() }
    }
}

/// A control sequence that asks.
pub(super) fn csi(csi: &Csi, model: &mut Model) -> Option<Asked> {
    let first = csi.number(0);
    let (rows, cols) = (model.primary.rows, model.primary.cols);
    let buffer = model.shown();
    let (y, x) = (buffer.y + 1, (buffer.x + 1).min(cols));
    Some(match (csi.mark, csi.middle, csi.last) {
        (0, 0, b'c') if first == 0 => Asked::new(Kind::Primary, "\x1b[?1;2c"),
        (b'>', 0, b'c') if first == 0 => Asked::new(Kind::Secondary, "\x1b[>0;276;0c"),
        (b'=', 0, b'c') if first == 0 => Asked::new(Kind::Tertiary, ""),
        (0, 0, b'n') if first == 5 => Asked::new(Kind::Status, "\x1b[0n"),
        (0, 0, b'n') if first == 6 => Asked::new(Kind::Cursor, format!("\x1b[{y};{x}R")),
        (b'?', 0, b'n') if first == 6 => Asked::new(Kind::PrivateCursor, format!("\x1b[?{y};{x}R")),
        (b'?', 0, b'n') => Asked::new(Kind::PrivateStatus, ""),
        (0 | b'?', b'$', b'p') => {
            let private = csi.mark == b'?';
            let mark = if private { "?" } else { "" };
            let state = if private { private_mode(first, model) } else { plain_mode(first, model) };
            Asked::new(Kind::Mode, format!("\x1b[{mark}{first};{state}$y"))
        }
        (b'>', 0, b'q') => Asked::new(Kind::Version, ""),
        (0, 0, b't') if first == 18 => Asked::new(Kind::Size, format!("\x1b[8;{rows};{cols}t")),
        (0, 0, b't') if matches!(first, 11 | 13 | 14 | 15 | 16 | 19) => Asked::new(Kind::Size, ""),
        (b'?', 0, b'u') => Asked::new(Kind::Keyboard, ""),
        (b'?', 0, b'm') => Asked::new(Kind::OtherKeys, ""),
        (b'?', 0, b'S') => Asked::new(Kind::Graphics, ""),
        (0, b'$', b'w') | (0, 0, b'x') => Asked::new(Kind::Parameters, ""),
        _ => return None,
    })
}

const fn state(on: bool) -> u8 {
    if on { 1 } else { 2 }
}

fn plain_mode(mode: usize, model: &Model) -> u8 {
    match mode {
        2 => 4,
        4 => state(model.modes.insert),
        12 => 3,
        20 => state(model.modes.returns),
        _ => 0,
    }
}

fn private_mode(mode: usize, model: &Model) -> u8 {
    let modes = &model.modes;
    match mode {
        1 => state(modes.cursor_keys),
        6 => state(modes.origin),
        7 => state(modes.wrap),
        8 => 3,
        9 | 1000 | 1002 | 1003 => state(modes.mouse == Mouse::Mode(mode as u16)),
        12 => state(modes.cursor_blink == Some(true)),
        25 => state(!modes.cursor_hidden),
        45 => state(modes.reverse_wrap),
        66 => state(modes.keypad),
        67 | 1005 | 1015 => 4,
        1004 => state(modes.focus),
        1006 | 1016 => state(usize::from(modes.mouse_coding) == mode),
        1048 => 1,
        47 | 1047 | 1049 => state(model.alternate.is_some()),
        2004 => state(modes.paste),
        2026 => state(modes.together),
        _ => 0,
    }
}

/// An operating system command that asks: one question for each `?`.
pub(super) fn osc(body: &[u8], model: &Model) -> Vec<Asked> {
    let text = String::from_utf8_lossy(body);
    let mut parts = text.split(';');
    let number = parts.next().unwrap_or_default();
    let say = |name: String, index: u16| {
        let default = if index == SPECIAL + 1 { [0; 3] } else { [255; 3] };
        let colour = model.colours.get(&index).copied();
        // What the colours of the palette are is the theme's affair.
        let Some([r, g, b]) = colour.or((index >= SPECIAL).then_some(default)) else {
            return Asked::new(Kind::Colour, "");
        };
        Asked::new(
            Kind::Colour,
            format!("\x1b]{name};rgb:{r:02x}{r:02x}/{g:02x}{g:02x}/{b:02x}{b:02x}\x1b\\"),
        )
    };
    match number {
        "4" => {
            let parts: Vec<&str> = parts.collect();
            let asked = parts.chunks(2).filter(|pair| pair.get(1) == Some(&"?"));
            let indexes = asked.filter_map(|pair| pair[0].parse::<u8>().ok());
            indexes.map(|index| say(format!("4;{index}"), u16::from(index))).collect()
        }
        "10" | "11" | "12" => {
            let first = u16::from(number.as_bytes()[1] - b'0');
            let asked = parts.zip(first..3).filter(|(part, _)| *part == "?");
            asked.map(|(_, index)| say(format!("{}", 10 + index), SPECIAL + index)).collect()
        }
        // Further colours that some terminals know.
        "5" | "13" | "14" | "15" | "16" | "17" | "19" | "21" => {
            parts.filter(|part| part.ends_with('?')).map(|_| Asked::new(Kind::Colour, "")).collect()
        }
        _ => Vec::new(),
    }
}

/// A device control that asks.
pub(super) fn dcs(body: &[u8]) -> Option<Asked> {
    let body = body.trim_ascii_start();
    if body.starts_with(b"$q") {
        Some(Asked::new(Kind::Setting, ""))
    } else {
        body.starts_with(b"+q").then(|| Asked::new(Kind::Capability, ""))
    }
}
