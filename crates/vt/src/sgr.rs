//! Parses and writes text attributes: `CSI … m` (SGR).

use crate::cell::{
    BLINK, BOLD, COLOUR, Colour, DIM, ExtendedStyle, HIDDEN, INVERSE, ITALIC, OVERLINE, STRIKE,
    Style, UNDERLINE,
};
use crate::csi::{Csi, Param};
use std::io::Write;

/// Applies a sequence to a style and to the underline colour.
pub(crate) fn apply(csi: &Csi, style: &mut Style, line: &mut u32) {
    let params = csi.raw_params();
    let mut index = 0;
    while let Some(param) = params.get(index) {
        let subs = params[index + 1..].iter().take_while(|param| param.is_sub).count();
        let value = param.value.unwrap_or(0);
        match value {
            38 | 48 | 58 => {
                let (colour, used) = extended(&params[index + 1..], subs);
                if let Some(colour) = colour {
                    match value {
                        38 => style.fg = style.fg & !COLOUR | colour,
                        48 => style.bg = style.bg & !COLOUR | colour,
                        _ => *line = colour,
                    }
                }
                index += 1 + used;
                continue;
            }
            4 => underline(style, if subs > 0 { params[index + 1].value.unwrap_or(1) } else { 1 }),
            0 => {
                *style = Style { fg: 0, bg: 0, more: style.more & !7 };
                *line = 0;
            }
            59 => *line = 0,
            _ => simple(value, style),
        }
        index += 1 + subs;
    }
}

fn underline(style: &mut Style, kind: u32) {
    let kind = if kind > 5 { 1 } else { kind };
    style.more = style.more & !7 | kind;
    style.fg = if kind == 0 { style.fg & !UNDERLINE } else { style.fg | UNDERLINE };
}

/// Applies an attribute that has no parameters.
fn simple(value: u32, style: &mut Style) {
    let basic = |first: u32, add: u32| Colour::Basic((value - first + add) as u8).pack();
    match value {
        1 => style.fg |= BOLD,
        2 => style.bg |= DIM,
        3 => style.bg |= ITALIC,
        5 => style.fg |= BLINK,
        7 => style.fg |= INVERSE,
        8 => style.fg |= HIDDEN,
        9 => style.fg |= STRIKE,
        21 => underline(style, 2),
        22 => {
            style.fg &= !BOLD;
            style.bg &= !DIM;
        }
        23 => style.bg &= !ITALIC,
        24 => underline(style, 0),
        25 => style.fg &= !BLINK,
        27 => style.fg &= !INVERSE,
        28 => style.fg &= !HIDDEN,
        29 => style.fg &= !STRIKE,
        30..=37 => style.fg = style.fg & !COLOUR | basic(30, 0),
        39 => style.fg &= !COLOUR,
        40..=47 => style.bg = style.bg & !COLOUR | basic(40, 0),
        49 => style.bg &= !COLOUR,
        53 => style.bg |= OVERLINE,
        55 => style.bg &= !OVERLINE,
        90..=97 => style.fg = style.fg & !COLOUR | basic(90, 8),
        100..=107 => style.bg = style.bg & !COLOUR | basic(100, 8),
        _ => {}
    }
}

/// Parses a colour behind 38, 48 or 58, with semicolons or colons; returns it with the number of
/// parameters that it took.
fn extended(rest: &[Param], subs: usize) -> (Option<u32>, usize) {
    let value = |index: usize| rest.get(index).and_then(|param| param.value).unwrap_or(0);
    let byte = |index: usize| value(index) as u8;
    if subs > 0 {
        // With colons, a colour space may precede the three components.
        let space = usize::from(subs > 4);
        let colour = match value(0) {
            2 if subs > 3 => {
                Some(Colour::Rgb(byte(1 + space), byte(2 + space), byte(3 + space)).pack())
            }
            5 if subs > 1 => Some(Colour::Indexed(byte(1)).pack()),
            _ => None,
        };
        return (colour, subs);
    }
    match value(0) {
        2 => (Some(Colour::Rgb(byte(1), byte(2), byte(3)).pack()), rest.len().min(4)),
        5 => (Some(Colour::Indexed(byte(1)).pack()), rest.len().min(2)),
        // xterm.js skips these too.
        0 => (None, rest.len().min(6)),
        _ => (None, rest.len().min(5)),
    }
}

/// Writes the sequence that sets a style, whatever the style was before. It does not set links.
pub(crate) fn write(out: &mut Vec<u8>, style: Style, extended: &ExtendedStyle) {
    out.extend_from_slice(b"\x1b[0");
    for (flag, param) in [(BOLD, 1), (BLINK, 5), (INVERSE, 7), (HIDDEN, 8), (STRIKE, 9)] {
        if style.fg & flag != 0 {
            let _ = write!(out, ";{param}");
        }
    }
    for (flag, param) in [(DIM, 2), (ITALIC, 3), (OVERLINE, 53)] {
        if style.bg & flag != 0 {
            let _ = write!(out, ";{param}");
        }
    }
    if style.fg & UNDERLINE != 0 {
        let _ = match style.underline() {
            0 | 1 => write!(out, ";4"),
            kind => write!(out, ";4:{kind}"),
        };
    }
    colour(out, style.fg, 30);
    colour(out, style.bg, 40);
    let _ = match Colour::unpack(extended.line) {
        Colour::Default => Ok(()),
        Colour::Basic(n) | Colour::Indexed(n) => write!(out, ";58:5:{n}"),
        Colour::Rgb(r, g, b) => write!(out, ";58:2::{r}:{g}:{b}"),
    };
    out.push(b'm');
}

fn colour(out: &mut Vec<u8>, bits: u32, first: u32) {
    let _ = match Colour::unpack(bits) {
        Colour::Default => Ok(()),
        Colour::Basic(n @ 0..=7) => write!(out, ";{}", first + u32::from(n)),
        Colour::Basic(n) => write!(out, ";{}", first + 52 + u32::from(n)),
        Colour::Indexed(n) => write!(out, ";{};5;{n}", first + 8),
        Colour::Rgb(r, g, b) => write!(out, ";{};2;{r};{g};{b}", first + 8),
    };
}
