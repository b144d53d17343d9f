//! The output of a program as lines of the log.

use crate::build_log::{BuildLog, LogLevel};
use isolet_wire::response::STDERR;

/// The longest line, in bytes; a longer one is several entries.
const LINE_BYTES_MAX: usize = 1900;

/// Splits the output of a program into lines.
pub(super) struct Output<'a> {
    log: &'a BuildLog,
    step: usize,
    /// What was written after the last line break, to standard output and standard error.
    parts: [Vec<u8>; 2],
}

impl<'a> Output<'a> {
    pub(super) fn new(log: &'a BuildLog, step: usize) -> Self {
        // What an earlier program wrote does not explain a failure of this one.
        drop(log.take_tail());
        Self { log, step, parts: [Vec::new(), Vec::new()] }
    }

    pub(super) fn write(&mut self, stream: u8, bytes: &[u8]) {
        let at = usize::from(stream == STDERR);
        for byte in bytes {
            match byte {
                b'\n' => self.flush(at),
                // A carriage return redraws a progress bar.
                b'\r' => {}
                byte => self.parts[at].push(*byte),
            }
            if self.parts[at].len() >= LINE_BYTES_MAX {
                self.flush(at);
            }
        }
    }

    fn flush(&mut self, at: usize) {
        let level = if at == 1 { LogLevel::Warn } else { LogLevel::Info };
        let line = String::from_utf8_lossy(&self.parts[at]);
        if !line.trim().is_empty() {
            self.log.output(level, self.step, &line);
        }
        self.parts[at].clear();
    }

    /// Ends the output, and returns its last lines.
    pub(super) fn finish(mut self) -> String {
        self.flush(0);
        self.flush(1);
        self.log.take_tail()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_wire::response::STDOUT;

    #[test]
    fn output_becomes_lines_with_the_level_of_its_stream() {
        let log = BuildLog::default();
        let mut output = Output::new(&log, 2);
        output.write(STDOUT, b"one\ntw");
        output.write(STDERR, b"warn");
        output.write(STDOUT, b"o\n\n");
        output.write(STDOUT, &[b'x'; LINE_BYTES_MAX + 1]);
        assert!(output.finish().ends_with("x\nwarn"));
        let all = log.all();
        let texts: Vec<&str> = all.iter().map(|entry| entry.message.as_str()).collect();
        let long = "x".repeat(LINE_BYTES_MAX);
        assert_eq!(texts, ["one", "two", long.as_str(), "x", "warn"]);
        assert_eq!(all[4].level, LogLevel::Warn);
        assert!(all.iter().all(|entry| entry.step == Some(2)));
    }
}
