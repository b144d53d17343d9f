//! Modes that programs set and reset, and keyboard modes.

/// Modes that have no effect on the model and are only repeated in snapshots.
const PASSED_ON: [u16; 10] = [5, 1005, 1007, 1015, 1034, 1036, 1039, 1042, 2027, 2031];
/// The most keyboard modes that a program may push.
const KEYS_MAX: usize = 16;

/// Which mouse events are reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Mouse {
    #[default]
    None,
    /// Mode 9, 1000, 1002 or 1003.
    Mode(u16),
}

/// The modes of a terminal. Most are independent switches, so the struct has a field for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Modes {
    pub(crate) cursor_keys: bool,
    pub(crate) keypad: bool,
    pub(crate) origin: bool,
    pub(crate) wrap: bool,
    pub(crate) reverse_wrap: bool,
    pub(crate) insert: bool,
    /// A line feed also returns the carriage: mode 20.
    pub(crate) newline: bool,
    pub(crate) cursor_hidden: bool,
    /// Mode 12; `None` until a program sets or resets it.
    pub(crate) cursor_blink: Option<bool>,
    /// The number of `CSI … SP q`, 0 to 6; 7 and 8 stand for the terminal's default shape, blinking
    /// and steady.
    pub(crate) cursor_shape: u8,
    pub(crate) mouse: Mouse,
    /// 0, 1006 or 1016.
    pub(crate) mouse_encoding: u16,
    pub(crate) focus_events: bool,
    pub(crate) bracketed_paste: bool,
    /// Synchronized output (mode 2026): the terminal shows output once it is complete.
    pub(crate) synchronized_output: bool,
    /// 0 to 2; see `CSI > 4 ; n m`.
    pub(crate) other_keys: u8,
    passed_on: [Option<bool>; PASSED_ON.len()],
}

impl Default for Modes {
    fn default() -> Self {
        Self {
            cursor_keys: false,
            keypad: false,
            origin: false,
            wrap: true,
            reverse_wrap: false,
            insert: false,
            newline: false,
            cursor_hidden: false,
            cursor_blink: None,
            cursor_shape: 0,
            mouse: Mouse::None,
            mouse_encoding: 0,
            focus_events: false,
            bracketed_paste: false,
            synchronized_output: false,
            other_keys: 0,
            passed_on: [None; _],
        }
    }
}

impl Modes {
    /// Sets or resets a private mode: `CSI ? n h` and `l`.
    pub(crate) fn switch(&mut self, mode: u16, on: bool) {
        match mode {
            1 => self.cursor_keys = on,
            7 => self.wrap = on,
            9 | 1000 | 1002 | 1003 => self.mouse = if on { Mouse::Mode(mode) } else { Mouse::None },
            12 => self.cursor_blink = Some(on),
            25 => self.cursor_hidden = !on,
            45 => self.reverse_wrap = on,
            66 => self.keypad = on,
            1004 => self.focus_events = on,
            1006 | 1016 => self.mouse_encoding = if on { mode } else { 0 },
            2004 => self.bracketed_paste = on,
            2026 => self.synchronized_output = on,
            _ => {
                if let Some(index) = PASSED_ON.iter().position(|other| *other == mode) {
                    self.passed_on[index] = Some(on);
                }
            }
        }
    }

    /// Sets the shape of the cursor. Numbers without a shape still set blinking: the odd ones
    /// blink.
    pub(crate) const fn set_cursor_style(&mut self, number: usize) {
        let steady = number.is_multiple_of(2) as u8;
        self.cursor_shape = match (number, self.cursor_shape) {
            (0..=6, _) => number as u8,
            (_, 0 | 7..) => 7 + steady,
            (_, shape) => (shape - 1) / 2 * 2 + 1 + steady,
        };
    }

    /// The modes of [`PASSED_ON`] that were set or reset.
    pub(crate) fn passed_on(&self) -> impl Iterator<Item = (u16, bool)> {
        PASSED_ON.into_iter().zip(self.passed_on).filter_map(|(mode, on)| Some((mode, on?)))
    }

    /// Resets what a soft reset (DECSTR) resets.
    pub(crate) fn soft_reset(&mut self) {
        *self = Self {
            mouse: self.mouse,
            mouse_encoding: self.mouse_encoding,
            cursor_blink: self.cursor_blink,
            newline: self.newline,
            passed_on: self.passed_on,
            ..Self::default()
        };
    }
}

/// The keyboard modes of one screen, by the kitty protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeyModes {
    /// The active mode is the last; those before it were pushed.
    pub(crate) stack: Vec<u8>,
}

impl KeyModes {
    pub(crate) fn now(&self) -> u8 {
        self.stack.last().copied().unwrap_or(0)
    }

    pub(crate) fn push(&mut self, flags: u8) {
        if self.stack.len() >= KEYS_MAX {
            self.stack.remove(0);
        }
        self.stack.push(flags);
    }

    pub(crate) fn pop(&mut self, count: usize) {
        self.stack.truncate(self.stack.len().saturating_sub(count));
    }

    /// `how`: 1 replaces the flags, 2 adds to them, 3 removes from them.
    pub(crate) fn set(&mut self, flags: u8, how: usize) {
        let now = match how {
            2 => self.now() | flags,
            3 => self.now() & !flags,
            _ => flags,
        };
        self.stack.pop();
        self.stack.push(now);
    }
}
