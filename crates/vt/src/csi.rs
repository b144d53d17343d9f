//! Parses control sequences: `ESC [`, a private prefix, parameters, an intermediate, a final
//! byte.

/// The most parameters that are stored; further ones are ignored.
const PARAMS_MAX: usize = 32;

/// A parsed control sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Csi {
    /// `<`, `=`, `>` or `?`; 0 without one.
    pub(crate) prefix: u8,
    /// The byte between parameters and final byte; 0 without one.
    pub(crate) intermediate: u8,
    /// Names the function, together with prefix and intermediate.
    pub(crate) final_byte: u8,
    params: [Param; PARAMS_MAX],
    params_len: usize,
}

/// A parameter, or a sub-parameter of the one before it (after a colon).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Param {
    /// `None` for an empty parameter.
    pub(crate) value: Option<u32>,
    /// Whether it follows a colon.
    pub(crate) is_sub: bool,
}

impl Csi {
    /// Parses everything behind the introducer, including the final byte. `None` when the sequence
    /// has no meaning.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let (&final_byte, rest) = body.split_last()?;
        let mut csi = Self {
            prefix: 0,
            intermediate: 0,
            final_byte,
            params: [Param::default(); _],
            params_len: 1,
        };
        let mut at_start = true;
        for byte in rest {
            let was_at_start = at_start;
            at_start &= !(0x20..0x40).contains(byte);
            match *byte {
                b'0'..=b'9' if csi.intermediate == 0 => csi.push_digit(u32::from(byte - b'0')),
                b';' | b':' if csi.intermediate == 0 => csi.next_param(*byte == b':'),
                b'<'..=b'?' if was_at_start => csi.prefix = *byte,
                0x20..=0x2f if csi.intermediate == 0 => csi.intermediate = *byte,
                0x20..=0x3f => return None,
                // Control characters were executed before; other bytes have no effect.
                _ => {}
            }
        }
        csi.params_len = csi.params_len.min(PARAMS_MAX);
        Some(csi)
    }

    fn push_digit(&mut self, digit: u32) {
        if let Some(param) = self.params.get_mut(self.params_len - 1) {
            param.value = Some((param.value.unwrap_or(0) * 10 + digit).min(0xffff));
        }
    }

    fn next_param(&mut self, is_sub: bool) {
        self.params_len = (self.params_len + 1).min(PARAMS_MAX + 1);
        if let Some(param) = self.params.get_mut(self.params_len - 1) {
            param.is_sub = is_sub;
        }
    }

    /// All parameters and sub-parameters, in order.
    pub(crate) fn raw_params(&self) -> &[Param] {
        &self.params[..self.params_len]
    }

    /// The parameters without their sub-parameters; 0 for an empty one.
    pub(crate) fn params(&self) -> impl Iterator<Item = u32> {
        self.raw_params().iter().filter(|param| !param.is_sub).map(|param| param.value.unwrap_or(0))
    }

    /// The parameter at `index`; 0 when it is absent or empty.
    pub(crate) fn param(&self, index: usize) -> usize {
        self.params().nth(index).unwrap_or(0) as usize
    }

    /// The parameter at `index` as a repeat count, of which the least and the default is 1.
    pub(crate) fn count(&self, index: usize) -> usize {
        self.param(index).max(1)
    }

    pub(crate) fn has_no_params(&self) -> bool {
        self.params_len == 1 && self.params[0].value.is_none()
    }
}
