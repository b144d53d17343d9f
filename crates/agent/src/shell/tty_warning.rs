//! Removes bash's warning that it has no terminal. An interactive bash writes it to standard error
//! after each foreground command that a signal ended: `bash: [PID: LEVEL (FD)] tcsetattr: …`.

/// Maximum length of the warning without its prefix, in bytes.
const LINE_BYTES_MAX: usize = 160;

/// The filter of one command's standard error. It holds back only bytes that may still become the
/// warning.
#[derive(Debug)]
pub(crate) struct TtyWarningFilter {
    head: Vec<u8>,
    held: Vec<u8>,
}

impl TtyWarningFilter {
    /// Creates the filter for a bash with this process id.
    #[must_use]
    pub(crate) fn new(pid: i32) -> Self {
        Self { head: format!("bash: [{pid}: ").into_bytes(), held: Vec::new() }
    }

    /// Adds bytes and returns those that certainly belong to the command.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let mut out = Vec::with_capacity(self.held.len());
        let mut rest = self.held.as_slice();
        while let Some(at) = find(rest, &self.head) {
            out.extend_from_slice(&rest[..at]);
            rest = &rest[at..];
            match line(&rest[self.head.len()..]) {
                Some(Some(length)) => rest = &rest[self.head.len() + length..],
                // Too short to decide.
                Some(None) => {
                    self.held = rest.to_vec();
                    return out;
                }
                None => {
                    out.push(rest[0]);
                    rest = &rest[1..];
                }
            }
        }
        let most = rest.len().min(self.head.len() - 1);
        let keep = (1..=most).rev().find(|n| self.head.starts_with(&rest[rest.len() - n..]));
        let (sure, open) = rest.split_at(rest.len() - keep.unwrap_or(0));
        out.extend_from_slice(sure);
        self.held = open.to_vec();
        out
    }

    /// Returns the bytes that were held back, because no more will come.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|part| part == needle)
}

/// Length of the warning after the process id, through its newline; `Some(None)` while it is
/// incomplete.
fn line(bytes: &[u8]) -> Option<Option<usize>> {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let text = &bytes[..end.unwrap_or(bytes.len())];
    if text.len() > LINE_BYTES_MAX {
        return None;
    }
    let digits = |from: usize| text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut at = digits(0);
    for word in [b" (".as_slice(), b")] tcsetattr: "] {
        let left = &text[at..];
        if left.len() < word.len() {
            return (end.is_none() && word.starts_with(left)).then_some(None);
        }
        if !left.starts_with(word) {
            return None;
        }
        at += word.len();
        at += digits(at);
    }
    Some(end.map(|end| end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAID: &[u8] =
        b"a\nbash: [3: 1 (255)] tcsetattr: Inappropriate ioctl for device\nbash: [4: 1 (255)] x\nbash: [3: b";

    proptest! {
        #[test]
        fn the_line_goes_wherever_it_is_cut(a in 0..SAID.len(), b in 0..SAID.len()) {
            let first = a.min(b);
            let second = a.max(b);
            let mut filter = TtyWarningFilter::new(3);
            let mut out = filter.push(&SAID[..first]);
            out.extend(filter.push(&SAID[first..second]));
            out.extend(filter.push(&SAID[second..]));
            out.extend(filter.rest());
            prop_assert_eq!(out, b"a\nbash: [4: 1 (255)] x\nbash: [3: b".to_vec());
        }

        #[test]
        fn other_bytes_stay(text in "(bash: \\[3: |[0-9]| \\(|\\)\\] tcset|\n|x){0,30}") {
            let mut filter = TtyWarningFilter::new(3);
            let mut out = filter.push(text.as_bytes());
            out.extend(filter.rest());
            prop_assert_eq!(out, text.into_bytes());
        }
    }
}
