//! Switches that programs set, and keyboard modes.

/// Switches that a model only passes on: it draws nothing differently for them.
const OTHERS: [u16; 10] = [5, 1005, 1007, 1015, 1034, 1036, 1039, 1042, 2027, 2031];
/// Keyboard modes that a program may put aside.
const KEYS_MAX: usize = 16;

/// Which mouse events are told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Mouse {
    #[default]
    None,
    /// Mode 9, 1000, 1002 or 1003.
    Mode(u16),
}

/// All switches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Modes {
    pub(super) cursor_keys: bool,
    pub(super) keypad: bool,
    pub(super) origin: bool,
    pub(super) wrap: bool,
    pub(super) reverse_wrap: bool,
    pub(super) insert: bool,
    /// A line feed also returns.
    pub(super) returns: bool,
    pub(super) cursor_hidden: bool,
    /// Mode 12.
    pub(super) cursor_blink: Option<bool>,
    /// As `CSI … SP q` gave it, 0 to 6; 7 and 8 for a shape of the terminal's own that blinks and
    /// that does not.
    pub(super) cursor_shape: u8,
    pub(super) mouse: Mouse,
    /// 0, 1006 or 1016.
    pub(super) mouse_coding: u16,
    pub(super) focus: bool,
    pub(super) paste: bool,
    /// What is written is to be shown when it is complete: mode 2026.
    pub(super) together: bool,
    /// 0 to 2; see `CSI > 4 ; n m`.
    pub(super) other_keys: u8,
    others: [Option<bool>; OTHERS.len()],
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
            returns: false,
            cursor_hidden: false,
            cursor_blink: None,
            cursor_shape: 0,
            mouse: Mouse::None,
            mouse_coding: 0,
            focus: false,
            paste: false,
            together: false,
            other_keys: 0,
            others: [None; _],
        }
    }
}

impl Modes {
    /// Switches one that concerns no screen: `CSI ? n h` and `l`.
    pub(super) fn switch(&mut self, mode: u16, on: bool) {
        match mode {
            1 => self.cursor_keys = on,
            7 => self.wrap = on,
            9 | 1000 | 1002 | 1003 => self.mouse = if on { Mouse::Mode(mode) } else { Mouse::None },
            12 => self.cursor_blink = Some(on),
            25 => self.cursor_hidden = !on,
            45 => self.reverse_wrap = on,
            66 => self.keypad = on,
            1004 => self.focus = on,
            1006 | 1016 => self.mouse_coding = if on { mode } else { 0 },
            2004 => self.paste = on,
            2026 => self.together = on,
            _ => {
                if let Some(index) = OTHERS.iter().position(|other| *other == mode) {
                    self.others[index] = Some(on);
                }
            }
        }
    }

    /// The cursor's shape. Numbers that name none still say whether it blinks, the odd ones.
    pub(super) const fn shape(&mut self, number: usize) {
        let steady = number.is_multiple_of(2) as u8;
        self.cursor_shape = match (number, self.cursor_shape) {
            (0..=6, _) => number as u8,
            (_, 0 | 7..) => 7 + steady,
            (_, shape) => (shape - 1) / 2 * 2 + 1 + steady,
        };
    }

    /// Switches that were touched and are only passed on.
    pub(super) fn others(&self) -> impl Iterator<Item = (u16, bool)> {
        OTHERS.into_iter().zip(self.others).filter_map(|(mode, on)| Some((mode, on?)))
    }

    /// What a soft reset leaves of them.
    pub(super) fn soften(&mut self) {
        *self = Self {
            mouse: self.mouse,
            mouse_coding: self.mouse_coding,
            cursor_blink: self.cursor_blink,
            returns: self.returns,
            others: self.others,
            ..Self::default()
        };
    }
}

/// Keyboard modes of one screen, as the kitty protocol has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Keys {
    /// In force, and below it what was put aside.
    pub(super) stack: Vec<u8>,
}

impl Keys {
    pub(super) fn now(&self) -> u8 {
        self.stack.last().copied().unwrap_or(0)
    }

    pub(super) fn push(&mut self, flags: u8) {
        if self.stack.len() >= KEYS_MAX {
            self.stack.remove(0);
        }
        self.stack.push(flags);
    }

    pub(super) fn pop(&mut self, count: usize) {
        self.stack.truncate(self.stack.len().saturating_sub(count));
    }

    /// `how`: 1 sets all, 2 adds, 3 takes away.
    pub(super) fn set(&mut self, flags: u8, how: usize) {
        let now = match how {
            2 => self.now() | flags,
            3 => self.now() & !flags,
            _ => flags,
        };
        self.stack.pop();
        self.stack.push(now);
    }
}
