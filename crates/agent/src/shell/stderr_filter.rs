//! Removes the agent's traces from a command's standard error: the output of `set -x` for the
//! agent's lines, the `[1] PID` of a background job, and the newline that bash prints at an
//! interrupt. Only exact matches are removed; in case of doubt, the bytes stay. The filter holds
//! back only bytes that could still become a match, and nothing for commands that cannot have one.

use super::bash_protocol::{Report, ReportedStep};

/// Maximum number of bytes that are held back. The agent's lines are shorter.
const HELD_BYTES_MAX: usize = 16 * 1024;
/// Length of a text, in bytes, above which its trace line stays.
const HEAD_TEXT_MAX: usize = 4096;

/// What an interactive bash prints at its `exit`.
const EXITS: [&[u8]; 2] = [b"exit\n", b"logout\n"];

/// The filter of one command.
#[derive(Debug, Default)]
pub(crate) struct StderrFilter {
    word: &'static str,
    heads: Vec<Vec<u8>>,
    traced_step: Option<u64>,
    starts_jobs: bool,
    interrupted: bool,
    may_exit: bool,
    held: Vec<u8>,
    inside_line: bool,
}

impl StderrFilter {
    /// `traced`: `set -x` is on; `long`: the text went through memory.
    #[must_use]
    pub(crate) fn new(step: ReportedStep, text: &str, traced: bool, long: bool) -> Self {
        let mut filter = Self {
            word: step.prefix,
            starts_jobs: super::bash_protocol::may_start_job(text),
            may_exit: text.contains("exit") || text.contains("logout"),
            ..Self::default()
        };
        if traced || text.contains("set -") || text.contains("xtrace") {
            filter.traced_step = Some(step.number);
        }
        if traced && text.len() <= HEAD_TEXT_MAX {
            filter.heads = heads(step, text, long);
        }
        filter
    }

    /// Whether nothing is to be removed or held back.
    #[must_use]
    pub(crate) fn is_passthrough(&self) -> bool {
        let takes =
            self.traced_step.is_some() || self.starts_jobs || self.interrupted || self.may_exit;
        !takes && self.held.is_empty()
    }

    /// From now on, a newline at the end may come from bash.
    pub(crate) fn note_interrupt(&mut self) {
        self.interrupted = true;
    }

    /// Adds bytes and returns those that certainly belong to the command.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        if !self.heads.is_empty() && !self.strip_head() {
            return Vec::new();
        }
        if self.starts_jobs {
            self.drop_jobs();
        }
        let keep = self.undecided_len().min(HELD_BYTES_MAX);
        let out: Vec<u8> = self.held.drain(..self.held.len() - keep).collect();
        if let Some(last) = out.last() {
            self.inside_line = *last != b'\n';
        }
        out
    }

    /// Returns the rest after the command has ended with `report`.
    pub(crate) fn finish(&mut self, report: &Report) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.held);
        if report.flags.contains('x') {
            let Report { number, code, asked, mark, flags, .. } = report;
            let mut tail = String::new();
            if report.whole {
                tail = format!("+ __ise={number}:{code}\n+ PS1=\n+ PROMPT_COMMAND=\n");
            }
            let word = self.word;
            tail.push_str(&format!("+ {word} echo {number} {asked} {mark} {flags}\n"));
            if rest.ends_with(tail.as_bytes()) {
                rest.truncate(rest.len() - tail.len());
            }
        }
        if self.interrupted && !report.whole && rest.last() == Some(&b'\n') {
            rest.pop();
        }
        rest
    }

    /// Returns the rest after the shell has ended, on its own or not.
    pub(crate) fn finish_at_exit(&mut self, by_itself: bool) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.held);
        if by_itself && self.may_exit && EXITS.contains(&rest.as_slice()) {
            rest.clear();
        }
        rest
    }

    /// Whether the beginning is decided.
    fn strip_head(&mut self) -> bool {
        if let Some(head) = self.heads.iter().find(|head| self.held.starts_with(head)) {
            self.held.drain(..head.len());
        } else if self.heads.iter().any(|head| head.starts_with(&self.held)) {
            return false;
        }
        self.heads.clear();
        true
    }

    fn drop_jobs(&mut self) {
        let mut at = if self.inside_line { line_after(&self.held, 0) } else { Some(0) };
        while let Some(start) = at {
            match job_line(&self.held[start..]) {
                Match::Whole(length) => {
                    self.held.drain(start..start + length);
                }
                _ => at = line_after(&self.held, start),
            }
        }
    }

    /// Number of bytes at the end that may still turn out to be the agent's.
    fn undecided_len(&self) -> usize {
        let line = match self.held.iter().rposition(|b| *b == b'\n') {
            Some(at) => at + 1,
            None if self.inside_line => self.held.len(),
            None => 0,
        };
        let last = &self.held[line..];
        let mut keep = 0;
        if self.starts_jobs && matches!(job_line(last), Match::Part) {
            keep = last.len();
        }
        if let Some(number) = self.traced_step {
            keep = keep.max(self.trace_len(number, line));
        }
        if self.may_exit {
            keep = keep.max(self.exit_word_len());
        }
        if self.interrupted && keep == 0 && self.held.last() == Some(&b'\n') {
            keep = 1;
        }
        keep
    }

    /// Length of a last line that is, or starts like, the word that an interactive shell prints at
    /// its exit.
    fn exit_word_len(&self) -> usize {
        let whole = self.held.strip_suffix(b"\n").unwrap_or(&self.held);
        let line = match whole.iter().rposition(|b| *b == b'\n') {
            Some(at) => at + 1,
            None if self.inside_line => return 0,
            None => 0,
        };
        let last = &self.held[line..];
        if EXITS.iter().any(|word| word.starts_with(last)) { last.len() } else { 0 }
    }

    fn trace_len(&self, number: u64, line: usize) -> usize {
        let word = self.word;
        for start in [format!("+ __ise={number}:"), format!("+ {word} echo {number} ")] {
            let start = start.as_bytes();
            let found = self.held.windows(start.len()).rposition(|part| part == start);
            if let Some(at) = found.filter(|at| *at == 0 || self.held[at - 1] == b'\n') {
                // The newline of an interrupt may precede it.
                return self.held.len() - at + usize::from(at > 0);
            }
            let last = &self.held[line..];
            if !last.is_empty() && start.starts_with(last) {
                return last.len() + usize::from(line > 0);
            }
        }
        0
    }
}

enum Match {
    No,
    Part,
    Whole(usize),
}

/// Matches the line of a new background job, such as `[1] 4711\n`.
fn job_line(bytes: &[u8]) -> Match {
    let mut at = 0;
    for (open, least) in [(b"[".as_slice(), 0), (b"] ".as_slice(), 1), (b"\n".as_slice(), 1)] {
        let digits = bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        if at > 0 && digits > 10 || at == 0 && digits > 0 {
            return Match::No;
        }
        at += digits;
        let left = &bytes[at..];
        if left.is_empty() {
            return Match::Part;
        }
        if digits < least || !left.starts_with(&open[..open.len().min(left.len())]) {
            return Match::No;
        }
        if left.len() < open.len() {
            return Match::Part;
        }
        at += open.len();
    }
    Match::Whole(at)
}

fn line_after(bytes: &[u8], from: usize) -> Option<usize> {
    let at = from + bytes[from..].iter().position(|b| *b == b'\n')? + 1;
    (at < bytes.len()).then_some(at)
}

/// The possible outputs of `set -x` for the first line, with all variants of bash's quoting.
fn heads(step: ReportedStep, text: &str, long: bool) -> Vec<Vec<u8>> {
    let ReportedStep { prefix: word, last, .. } = step;
    let mut open = String::new();
    if long {
        open.push_str(&format!("+ {word} mapfile -n 1 -d '' __ist\n"));
    }
    if last != 0 {
        open.push_str(&format!("+ __isr {last}\n+ return {last}\n"));
    }
    let mut quoted = String::new();
    super::bash_protocol::quote(&mut quoted, text);
    [text, &quoted]
        .into_iter()
        .map(|text| format!("{open}+ {word} eval {text}\n").into_bytes())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn report(number: u64, flags: &str, whole: bool) -> Report {
        let mark = if whole { format!("{number}:0") } else { "3:0".into() };
        let asked = if whole { 0 } else { 130 };
        Report { number, code: asked, asked, whole, mark, flags: flags.into() }
    }

    const TRACED: &str = "+ builtin eval 'echo ho'\n++ echo ho\n+ __ise=6:0\n+ PS1=\n\
                          + PROMPT_COMMAND=\n+ builtin echo 6 0 6:0 hixBs\n";

    proptest! {
        #[test]
        fn however_it_is_cut_only_the_driver_goes(cut in 0..TRACED.len(), again in 0..TRACED.len()) {
            let a = cut.min(again);
            let b = cut.max(again);
            let mut filter = StderrFilter::new(ReportedStep { number: 6, ..ReportedStep::default() }, "echo ho", true, false);
            let mut out = filter.push(&TRACED.as_bytes()[..a]);
            out.extend(filter.push(&TRACED.as_bytes()[a..b]));
            out.extend(filter.push(&TRACED.as_bytes()[b..]));
            out.extend(filter.finish(&report(6, "hixBs", true)));
            prop_assert_eq!(out, b"++ echo ho\n".to_vec());
        }

        #[test]
        fn bytes_of_a_command_stay(text in proptest::collection::vec(any::<u8>(), 0..200), at in 0..200_usize) {
            let mut filter = StderrFilter::new(ReportedStep { number: 6, ..ReportedStep::default() }, "set -x & x", false, false);
            let at = at.min(text.len());
            let mut out = filter.push(&text[..at]);
            out.extend(filter.push(&text[at..]));
            out.extend(filter.finish(&report(6, "hiBs", true)));
            prop_assert_eq!(out, text);
        }

        #[test]
        fn a_job_line_goes_and_its_neighbours_stay(at in 0..20_usize) {
            let said = b"err\n[1] 4711\n[2] x\n[1";
            let at = at.min(said.len());
            let mut filter = StderrFilter::new(ReportedStep { number: 6, ..ReportedStep::default() }, "sleep 1 &", false, false);
            let mut out = filter.push(&said[..at]);
            out.extend(filter.push(&said[at..]));
            out.extend(filter.finish(&report(6, "hiBs", true)));
            prop_assert_eq!(out, b"err\n[2] x\n[1".to_vec());
        }
    }

    #[test]
    fn the_newline_of_an_interrupt_goes_only_when_the_line_was_abandoned() {
        for (whole, left) in [(true, "k\n\n"), (false, "k\n")] {
            let mut filter = StderrFilter::new(
                ReportedStep { number: 6, ..ReportedStep::default() },
                "echo",
                false,
                false,
            );
            filter.note_interrupt();
            let mut out = filter.push(b"k\n");
            out.extend(filter.push(b"\n"));
            out.extend(filter.finish(&report(6, "hiBs", whole)));
            assert_eq!(out, left.as_bytes());
        }
    }
}
