//! Whether a terminal shows its second screen, on which editors draw. The sequence that leaves this screen moves
//! the cursor in tmux, also on the first screen, so the client must know.

/// The modes that switch to the second screen.
const MODES: [&[u8]; 3] = [b"47", b"1047", b"1049"];
/// The longest parameters that are kept, in bytes.
const PARAMETER_BYTES_MAX: usize = 64;

/// Follows a terminal's output.
#[derive(Debug, Default)]
pub(super) struct AlternateScreen {
    active: bool,
    state: State,
}

/// Where in an escape sequence the output is.
#[derive(Debug, Default)]
enum State {
    #[default]
    Text,
    /// Behind ESC.
    Escape,
    /// Behind ESC [, with the parameters so far.
    Parameters(Vec<u8>),
}

impl AlternateScreen {
    /// Whether the second screen is shown.
    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    /// Reads output. Sequences may begin and end in different parts.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let state = std::mem::take(&mut self.state);
            self.state = match (state, *byte) {
                (_, 0x1b) => State::Escape,
                (State::Escape, b'[') => State::Parameters(Vec::new()),
                (State::Escape, b'c') => {
                    self.active = false;
                    State::Text
                }
                (State::Parameters(mut parameters), 0x30..=0x3f)
                    if parameters.len() < PARAMETER_BYTES_MAX =>
                {
                    parameters.push(*byte);
                    State::Parameters(parameters)
                }
                (State::Parameters(parameters), b'h' | b'l') => {
                    let modes = parameters.strip_prefix(b"?").unwrap_or_default();
                    if modes.split(|byte| *byte == b';').any(|mode| MODES.contains(&mode)) {
                        self.active = *byte == b'h';
                    }
                    State::Text
                }
                _ => State::Text,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::AlternateScreen;

    fn is_active(parts: &[&str]) -> bool {
        let mut screen = AlternateScreen::default();
        parts.iter().for_each(|part| screen.read(part.as_bytes()));
        screen.is_active()
    }

    #[test]
    fn the_last_switch_counts_also_in_parts_and_among_other_modes() {
        for parts in [
            &["\x1b[?1049h"][..],
            &["text\x1b", "[?10", "49hmore"],
            &["\x1b[?1;47;7h"],
            &["\x1b[?1049l\x1b[?1047h"],
            &["\x1b[?1049h\x1b[2J\x1b[?1000h\x1b[?25l"],
        ] {
            assert!(is_active(parts), "{parts:?}");
        }
        for parts in [
            &[""][..],
            &["\x1b[?1049h", "\x1b[?1049l"],
            &["\x1b[1049h"],
            &["\x1b[?10490h"],
            &["\x1b[?1049h\x1bc"],
            &["[?1049h"],
        ] {
            assert!(!is_active(parts), "{parts:?}");
        }
    }
}
