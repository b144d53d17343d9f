//! A control sequence, taken apart: `ESC [`, a private mark, numbers, intermediates, a final byte.

/// The most numbers that are looked at.
const NUMBERS_MAX: usize = 32;

/// What it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Csi {
    /// `<`, `=`, `>` or `?`; 0 without one.
    pub(super) mark: u8,
    /// The byte between numbers and final byte; 0 without one.
    pub(super) middle: u8,
    /// What is to be done.
    pub(super) last: u8,
    numbers: [Number; NUMBERS_MAX],
    count: usize,
}

/// One number, or one that belongs to the number before it (after a colon).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Number {
    /// `None` where nothing was written.
    pub(super) value: Option<u32>,
    /// It stood after a colon.
    pub(super) sub: bool,
}

impl Csi {
    /// Reads one from behind its introduction to its final byte; `None` for one that means nothing.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let (&last, rest) = body.split_last()?;
        let mut csi = Self { mark: 0, middle: 0, last, numbers: [Number::default(); _], count: 1 };
        let mut first = true;
        for byte in rest {
            let begins = first;
            first &= !(0x20..0x40).contains(byte);
            match *byte {
                b'0'..=b'9' if csi.middle == 0 => csi.digit(u32::from(byte - b'0')),
                b';' | b':' if csi.middle == 0 => csi.next(*byte == b':'),
                b'<'..=b'?' if begins => csi.mark = *byte,
                0x20..=0x2f if csi.middle == 0 => csi.middle = *byte,
                0x20..=0x3f => return None,
                // Controls were done before; what else there is does nothing.
                _ => {}
            }
        }
        csi.count = csi.count.min(NUMBERS_MAX);
        Some(csi)
    }

    fn digit(&mut self, digit: u32) {
        if let Some(number) = self.numbers.get_mut(self.count - 1) {
            number.value = Some((number.value.unwrap_or(0) * 10 + digit).min(0xffff));
        }
    }

    fn next(&mut self, sub: bool) {
        self.count = (self.count + 1).min(NUMBERS_MAX + 1);
        if let Some(number) = self.numbers.get_mut(self.count - 1) {
            number.sub = sub;
        }
    }

    /// Its numbers, those after colons among them.
    pub(super) fn numbers(&self) -> &[Number] {
        &self.numbers[..self.count]
    }

    /// The first number of each group.
    pub(super) fn groups(&self) -> impl Iterator<Item = u32> {
        self.numbers().iter().filter(|number| !number.sub).map(|number| number.value.unwrap_or(0))
    }

    /// A number, 0 where there is none.
    pub(super) fn number(&self, index: usize) -> usize {
        self.groups().nth(index).unwrap_or(0) as usize
    }

    /// A number that counts: 1 where there is none, or 0.
    pub(super) fn count(&self, index: usize) -> usize {
        self.number(index).max(1)
    }

    /// It was written without any number.
    pub(super) fn is_bare(&self) -> bool {
        self.count == 1 && self.numbers[0].value.is_none()
    }
}
