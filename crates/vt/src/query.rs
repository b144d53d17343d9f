//! Queries of programs to their terminal, and the model's replies. The replies are those of
//! xterm.js, so programs see the same kind of terminal whether or not a client is attached. No
//! reply contains text that a program chose.

use crate::csi::Csi;
use crate::model::Model;
use crate::modes::Mouse;
use crate::osc::SPECIAL;

/// What a program asks its terminal for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueryKind {
    /// Cursor position: `CSI 6 n`.
    Cursor,
    /// Cursor position with a page: `CSI ? 6 n`.
    PrivateCursor,
    /// Device status: `CSI 5 n`.
    Status,
    /// Status of printers, locators, colour schemes: `CSI ? n n`.
    PrivateStatus,
    /// Primary device attributes: `CSI c`.
    Primary,
    /// Secondary device attributes: `CSI > c`.
    Secondary,
    /// Tertiary device attributes: `CSI = c`.
    Tertiary,
    /// Whether a mode is set: `CSI ? n $ p`.
    Mode,
    /// Name and version: `CSI > q`.
    Version,
    /// Sizes of the window and of cells: `CSI 14 t` and similar.
    Size,
    /// `OSC 4`, `10`, `11`, `12` with `?`.
    Colour,
    /// A setting (DECRQSS): `DCS $ q`.
    Setting,
    /// A terminfo capability (XTGETTCAP): `DCS + q`.
    Capability,
    /// Keyboard modes: `CSI ? u`.
    Keyboard,
    /// The `modifyOtherKeys` mode: `CSI ? 4 m`.
    OtherKeys,
    /// Graphics attributes: `CSI ? n S`.
    Graphics,
    /// Terminal parameters: `CSI x`, `CSI n $ w`.
    Parameters,
    /// Replies that are never expected: clipboard and titles.
    Never,
}

/// A query, and the reply that the model gives to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    pub(crate) kind: QueryKind,
    /// What to send to the program when no client replies; empty where the model has no reply.
    pub default_reply: Vec<u8>,
}

impl Query {
    fn new(kind: QueryKind, default_reply: impl Into<Vec<u8>>) -> Self {
        Self { kind, default_reply: default_reply.into() }
    }
}

/// The query that a control sequence makes.
pub(crate) fn csi(csi: &Csi, model: &mut Model) -> Option<Query> {
    let first = csi.param(0);
    let rows = model.primary.rows;
    let cols = model.primary.cols;
    let buffer = model.shown();
    let y = buffer.y + 1;
    let x = (buffer.x + 1).min(cols);
    Some(match (csi.prefix, csi.intermediate, csi.final_byte) {
        (0, 0, b'c') if first == 0 => Query::new(QueryKind::Primary, "\x1b[?1;2c"),
        (b'>', 0, b'c') if first == 0 => Query::new(QueryKind::Secondary, "\x1b[>0;276;0c"),
        (b'=', 0, b'c') if first == 0 => Query::new(QueryKind::Tertiary, ""),
        (0, 0, b'n') if first == 5 => Query::new(QueryKind::Status, "\x1b[0n"),
        (0, 0, b'n') if first == 6 => Query::new(QueryKind::Cursor, format!("\x1b[{y};{x}R")),
        (b'?', 0, b'n') if first == 6 => {
            Query::new(QueryKind::PrivateCursor, format!("\x1b[?{y};{x}R"))
        }
        (b'?', 0, b'n') => Query::new(QueryKind::PrivateStatus, ""),
        (0 | b'?', b'$', b'p') => {
            let private = csi.prefix == b'?';
            let mark = if private { "?" } else { "" };
            let state = if private { private_mode(first, model) } else { plain_mode(first, model) };
            Query::new(QueryKind::Mode, format!("\x1b[{mark}{first};{state}$y"))
        }
        (b'>', 0, b'q') => Query::new(QueryKind::Version, ""),
        (0, 0, b't') if first == 18 => {
            Query::new(QueryKind::Size, format!("\x1b[8;{rows};{cols}t"))
        }
        (0, 0, b't') if matches!(first, 11 | 13 | 14 | 15 | 16 | 19) => {
            Query::new(QueryKind::Size, "")
        }
        (b'?', 0, b'u') => Query::new(QueryKind::Keyboard, ""),
        (b'?', 0, b'm') => Query::new(QueryKind::OtherKeys, ""),
        (b'?', 0, b'S') => Query::new(QueryKind::Graphics, ""),
        (0, b'$', b'w') | (0, 0, b'x') => Query::new(QueryKind::Parameters, ""),
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
        20 => state(model.modes.newline),
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
        1004 => state(modes.focus_events),
        1006 | 1016 => state(usize::from(modes.mouse_encoding) == mode),
        1048 => 1,
        47 | 1047 | 1049 => state(model.alternate.is_some()),
        2004 => state(modes.bracketed_paste),
        2026 => state(modes.synchronized_output),
        _ => 0,
    }
}

/// The queries that an operating system command makes: one for each `?`.
pub(crate) fn osc(body: &[u8], model: &Model) -> Vec<Query> {
    let text = String::from_utf8_lossy(body);
    let mut parts = text.split(';');
    let number = parts.next().unwrap_or_default();
    let reply = |name: String, index: u16| {
        let default = if index == SPECIAL + 1 { [0; 3] } else { [255; 3] };
        let colour = model.colours.get(&index).copied();
        // The palette depends on the client's theme.
        let Some([r, g, b]) = colour.or((index >= SPECIAL).then_some(default)) else {
            return Query::new(QueryKind::Colour, "");
        };
        Query::new(
            QueryKind::Colour,
            format!("\x1b]{name};rgb:{r:02x}{r:02x}/{g:02x}{g:02x}/{b:02x}{b:02x}\x1b\\"),
        )
    };
    match number {
        "4" => {
            let parts: Vec<&str> = parts.collect();
            let queried = parts.chunks(2).filter(|pair| pair.get(1) == Some(&"?"));
            let indexes = queried.filter_map(|pair| pair[0].parse::<u8>().ok());
            indexes.map(|index| reply(format!("4;{index}"), u16::from(index))).collect()
        }
        "10" | "11" | "12" => {
            let first = u16::from(number.as_bytes()[1] - b'0');
            let queried = parts.zip(first..3).filter(|(part, _)| *part == "?");
            queried.map(|(_, index)| reply(format!("{}", 10 + index), SPECIAL + index)).collect()
        }
        // Further colours that some terminals support.
        "5" | "13" | "14" | "15" | "16" | "17" | "19" | "21" => parts
            .filter(|part| part.ends_with('?'))
            .map(|_| Query::new(QueryKind::Colour, ""))
            .collect(),
        _ => Vec::new(),
    }
}

/// The query that a device control string makes.
pub(crate) fn dcs(body: &[u8]) -> Option<Query> {
    let body = body.trim_ascii_start();
    if body.starts_with(b"$q") {
        Some(Query::new(QueryKind::Setting, ""))
    } else {
        body.starts_with(b"+q").then(|| Query::new(QueryKind::Capability, ""))
    }
}
