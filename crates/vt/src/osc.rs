//! Operating system commands: titles, links, colours. All others are ignored, above all those for
//! the clipboard.

use crate::model::Model;

/// The longest address of a link, in bytes.
const LINK_BYTES_MAX: usize = 1024;
/// The longest parameters of a link.
const LINK_PARAMETERS_MAX: usize = 256;
/// Number of the text colour; those of background and cursor follow.
pub(crate) const SPECIAL: u16 = 256;

impl Model {
    /// Executes a command. Unknown ones have no effect.
    pub(crate) fn osc(&mut self, body: &[u8]) {
        let mut text: String = body.utf8_chunks().map(|chunk| chunk.valid()).collect();
        text.retain(|c| c >= ' ' && c != '\u{feff}');
        let (number, rest) = text.split_once(';').unwrap_or((&text, ""));
        match number {
            "0" | "2" => self.set_title(rest),
            "4" => self.set_palette_colours(rest),
            "8" => self.hyperlink(rest),
            "10" | "11" | "12" => {
                let first = SPECIAL + u16::from(number.as_bytes()[1] - b'0');
                rest.split(';')
                    .zip(first..SPECIAL + 3)
                    .for_each(|(colour, index)| self.colour(index, colour));
            }
            "104" if rest.is_empty() => self.colours.retain(|index, _| *index >= SPECIAL),
            "104" => {
                rest.split(';').filter_map(|index| index.parse::<u8>().ok()).for_each(|index| {
                    self.colours.remove(&u16::from(index));
                })
            }
            "110" | "111" | "112" => {
                self.colours.remove(&(SPECIAL + u16::from(number.as_bytes()[2] - b'0')));
            }
            _ => {}
        }
    }

    fn set_palette_colours(&mut self, rest: &str) {
        let mut parts = rest.split(';');
        while let Some(index) = parts.next()
            && let Some(colour) = parts.next()
        {
            if let Ok(index) = index.parse::<u8>() {
                self.colour(u16::from(index), colour);
            }
        }
    }

    fn colour(&mut self, index: u16, colour: &str) {
        if let Some(colour) = parse(colour) {
            self.colours.insert(index, colour);
        }
    }

    /// Begins a link, from `parameters;address`; without an address the link ends.
    fn hyperlink(&mut self, rest: &str) {
        let Some((parameters, address)) = rest.split_once(';') else { return };
        let clean = |text: &str| !text.chars().any(char::is_control);
        let fits = address.len() <= LINK_BYTES_MAX && parameters.len() <= LINK_PARAMETERS_MAX;
        if address.is_empty() || !fits || !clean(address) || !clean(parameters) {
            return self.set_link(None);
        }
        self.set_link(Some((parameters.to_owned(), address.to_owned())));
    }
}

/// A colour as `rgb:r/g/b` or `#rgb` with one to four digits each.
fn parse(text: &str) -> Option<[u8; 3]> {
    let parts: Vec<&str> = if let Some(rest) = text.strip_prefix("rgb:") {
        rest.split('/').collect()
    } else {
        let rest = text
            .strip_prefix('#')
            .filter(|rest| rest.is_ascii() && rest.len() % 3 == 0 && !rest.is_empty())?;
        let each = rest.len() / 3;
        vec![&rest[..each], &rest[each..2 * each], &rest[2 * each..]]
    };
    let [red, green, blue] = parts.try_into().ok()?;
    let part = |text: &str| {
        let value = u32::from_str_radix(text, 16).ok()?;
        let most = match text.len() {
            1..=4 => (1_u32 << (4 * text.len())) - 1,
            _ => return None,
        };
        Some((value * 255 / most) as u8)
    };
    Some([part(red)?, part(green)?, part(blue)?])
}
