//! The lines that the agent writes to bash, and the reports that bash writes back. This module only
//! handles text, and descriptors are numbers.
//!
//! A step has two lines. The first evaluates a quoted text, and the second reports on descriptor
//! 57. There are two lines because bash may abandon one (after an interrupt, `set -u` or `${x:?}`)
//! and then returns to its reader, where the second line still waits. Text from a tenant is always
//! quoted.

/// The read end of the pipe for commands with standard input.
pub(crate) const FD_STDIN: i32 = 56;
/// The status channel, on which bash reports the end of a step.
pub(crate) const FD_STATUS: i32 = 57;
/// `/dev/null`, the standard input of all other commands.
pub(crate) const FD_NULL: i32 = 58;
/// The file in memory that holds long texts.
pub(crate) const FD_TEXT: i32 = 59;

/// Length, in bytes, from which a text goes through [`FD_TEXT`]: bash reads lines in chunks of 1
/// KiB but a file at once.
pub(crate) const INLINE_BYTES_MAX: usize = 900;

/// The first line of a new bash. Its report has the number 0.
pub(crate) const INIT: &str = "PS1= PS2= MAILCHECK=; unset HISTFILE PROMPT_COMMAND; set +o history; \
set +H; shopt -u checkwinsize; shopt -s execfail; __isr() { return \"$1\"; }; __ise=; history -c; \
shopt -s expand_aliases\n\\builtin echo 0 0 0:0 \"$-\" >&57\n";

/// The prefix with which the agent's lines reach a builtin that a function may hide.
pub(crate) const BUILTIN: &str = "builtin";
/// The prefix in a shell that has a function named `builtin`.
pub(crate) const COMMAND_BUILTIN: &str = "command builtin";

/// The parameters of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReportedStep {
    /// The prefix of the command: [`BUILTIN`] or [`COMMAND_BUILTIN`].
    pub(crate) prefix: &'static str,
    /// The number of the step, which its report repeats.
    pub(crate) number: u64,
    /// The value of `$?` at the start of the text.
    pub(crate) last: i32,
    /// Read standard input from [`FD_STDIN`].
    pub(crate) stdin: bool,
    /// Redirect standard error to standard output.
    pub(crate) merge: bool,
    /// A step of the agent itself. Its code is in the variable `__isf` and is never a failure of
    /// the line, which would end the shell under `set -e`.
    pub(crate) own: bool,
}

impl Default for ReportedStep {
    fn default() -> Self {
        Self { prefix: BUILTIN, number: 0, last: 0, stdin: false, merge: false, own: false }
    }
}

/// Appends `text` in single quotes.
pub(crate) fn quote(out: &mut String, text: &str) {
    out.push('\'');
    for (at, part) in text.split('\'').enumerate() {
        if at > 0 {
            out.push_str("'\\''");
        }
        out.push_str(part);
    }
    out.push('\'');
}

/// Appends both lines of a step. With `None`, the text comes from [`FD_TEXT`].
pub(crate) fn write_step(out: &mut String, step: ReportedStep, text: Option<&str>) {
    use std::fmt::Write as _;
    let word = step.prefix;
    if text.is_none() {
        let _ = writeln!(out, "\\{word} mapfile -n 1 -d '' __ist <&{FD_TEXT}");
    }
    if step.last != 0 {
        let _ = write!(out, "__isr {}; ", step.last);
    }
    let _ = write!(out, "\\{word} eval ");
    match text {
        Some(text) => quote(out, text),
        None => out.push_str("\"$__ist\""),
    }
    let from = if step.stdin { FD_STDIN } else { FD_NULL };
    let merge = if step.merge { " 2>&1" } else { "" };
    let code = if step.own { "$__isf" } else { "$?" };
    let number = step.number;
    let _ = writeln!(out, " <&{from}{merge}; __ise={number}:{code} PS1= PROMPT_COMMAND=");
    request_report(out, word, number);
}

/// Appends only the second line.
pub(crate) fn request_report(out: &mut String, word: &str, number: u64) {
    use std::fmt::Write as _;
    let _ = writeln!(out, "\\{word} echo {number} \"$?\" \"$__ise\" \"$-\" >&{FD_STATUS}");
}

/// Whether `name` is a valid name of a variable.
#[must_use]
pub(crate) fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The code of [`setup_step`] if the command's directory cannot be entered.
pub(crate) const NO_DIRECTORY: i32 = 2;

/// The setup step of a command: pending history, and the command's own directory and environment
/// with a backup of the old values.
#[must_use]
pub(crate) fn setup_step<'a>(
    word: &str,
    history: impl Iterator<Item = &'a str>,
    cwd: Option<&str>,
    env: &std::collections::BTreeMap<String, Option<String>>,
) -> String {
    use std::fmt::Write as _;
    let mut out = String::from("__isf=1; ");
    for text in history {
        let _ = write!(out, "\\{word} history -s -- ");
        quote(&mut out, text);
        out.push_str("; ");
    }
    let _ = write!(out, "\\{word} unset -v __isd");
    for at in 0..env.len() {
        let _ = write!(out, " __isn{at}");
    }
    // In a list that ends with `|| :`, neither `set -e` nor an ERR trap reacts to a failure.
    out.push_str("; { ");
    if let Some(cwd) = cwd {
        // The code says that the directory failed.
        let _ = write!(out, "__isf={NO_DIRECTORY} ");
        out.push_str("__isw=$PWD __isq=${OLDPWD+x} __iso=${OLDPWD-} && CDPATH= ");
        let _ = write!(out, "\\{word} cd -- ");
        quote(&mut out, if cwd == "-" { "./-" } else { cwd });
        out.push_str(" && __isd=$PWD __isf=1 && ");
    }
    for (at, (name, value)) in env.iter().enumerate() {
        let now = declaration_of(name);
        let _ = write!(out, "__isv{at}={now} && \\{word} unset -v {name} && ");
        if let Some(value) = value {
            let _ = write!(out, "\\{word} export {name}=");
            quote(&mut out, value);
            out.push_str(" && ");
        }
        let _ = write!(out, "__isn{at}={now} && ");
    }
    out.push_str("__isf=0; } || :");
    out
}

/// Expands to the assignment that restores the variable with its attributes.
fn declaration_of(name: &str) -> String {
    format!("${{{name}[@]+${{{name}[@]@A}}}}")
}

/// The cleanup step of a command: restores everything that the command did not change itself.
#[must_use]
pub(crate) fn cleanup_step(
    word: &str,
    cwd: bool,
    env: &std::collections::BTreeMap<String, Option<String>>,
) -> String {
    use std::fmt::Write as _;
    let mut out = String::from("{ ");
    for (at, name) in env.keys().enumerate() {
        let now = declaration_of(name);
        let _ = write!(
            out,
            "__isc={now}; \\{word} test \"${{__isn{at}+x}}\" && \
             \\{word} test \"$__isc\" = \"$__isn{at}\" && \
             \\{word} unset -v {name} && \\{word} eval \"$__isv{at}\"; "
        );
    }
    if cwd {
        let _ = write!(
            out,
            "\\{word} test \"${{__isd+x}}\" && \\{word} test \"$PWD\" = \"$__isd\" && \
             __isp=${{OLDPWD-}} && CDPATH= \\{word} cd -- \"$__isw\" 2>/dev/null && \
             if \\{word} test \"$__isp\" != \"$__isw\"; then OLDPWD=$__isp; \
             elif \\{word} test \"$__isq\"; then OLDPWD=$__iso; \
             else \\{word} unset -v OLDPWD; fi; ",
        );
    }
    let _ = write!(out, "\\{word} unset -v __isw __iso __isq __isp __isd __isc");
    for at in 0..env.len() {
        let _ = write!(out, " __isv{at} __isn{at}");
    }
    out.push_str("; } || :; __isf=0");
    out
}

/// A report of bash at the end of a step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Report {
    /// The number of the step.
    pub(crate) number: u64,
    /// The exit code of the step.
    pub(crate) code: i32,
    /// The value of `$?` in the second line: 0 unless the first line was abandoned.
    pub(crate) asked: i32,
    /// The first line was completed.
    pub(crate) whole: bool,
    /// The value of `__ise`.
    pub(crate) mark: String,
    /// The value of `$-`.
    pub(crate) flags: String,
}

/// Parses a line (without its newline) from the status channel. A tenant can also write there, but
/// only harms its own shell.
#[must_use]
pub(crate) fn parse_report(line: &[u8]) -> Option<Report> {
    let line = std::str::from_utf8(line).ok()?;
    let (number, rest) = line.split_once(' ')?;
    let (asked, rest) = rest.split_once(' ')?;
    let (mark, flags) = rest.rsplit_once(' ')?;
    let number: u64 = number.parse().ok()?;
    let asked: i32 = asked.parse().ok()?;
    let own = mark
        .split_once(':')
        .filter(|(n, _)| n.parse() == Ok(number))
        .and_then(|(_, code)| code.parse::<i32>().ok());
    Some(Report {
        number,
        code: own.unwrap_or(asked),
        asked,
        whole: own.is_some(),
        mark: mark.to_owned(),
        flags: flags.to_owned(),
    })
}

/// Whether the text may ask for the list of earlier commands.
#[must_use]
pub(crate) fn mentions_history(text: &str) -> bool {
    text.contains("history") || text.contains("fc")
}

/// Whether the text contains a `&` that may start a background job: one that is not part of `&&`,
/// `>&`, `<&`, `&>` or `|&`.
#[must_use]
pub(crate) fn may_start_job(text: &str) -> bool {
    let bytes = text.as_bytes();
    (0..bytes.len()).any(|at| {
        bytes[at] == b'&'
            && !matches!(at.checked_sub(1).map(|i| bytes[i]), Some(b'&' | b'>' | b'<' | b'|'))
            && !matches!(bytes.get(at + 1), Some(b'&' | b'>'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    #[test]
    fn a_step_is_two_lines_of_quoted_text() {
        let mut out = String::new();
        let how = ReportedStep { number: 7, last: 3, ..ReportedStep::default() };
        write_step(&mut out, how, Some("echo 'a'"));
        assert_eq!(
            out,
            "__isr 3; \\builtin eval 'echo '\\''a'\\''' <&58; __ise=7:$? PS1= PROMPT_COMMAND=\n\
             \\builtin echo 7 \"$?\" \"$__ise\" \"$-\" >&57\n"
        );
    }

    #[test]
    fn a_report_tells_an_abandoned_line_from_a_whole_one() {
        let whole = parse_report(b"7 0 7:3 hiBs").expect("a report");
        assert_eq!((whole.number, whole.code, whole.whole), (7, 3, true));
        let cut = parse_report(b"7 130 6:0 hiBs").expect("a report");
        assert_eq!((cut.code, cut.whole), (130, false));
        assert_eq!(parse_report(b"7 x 7:0 hiBs"), None);
        assert_eq!(parse_report(b"\xff"), None);
    }

    #[test]
    fn only_a_lone_ampersand_starts_a_job() {
        assert!(may_start_job("sleep 1 & echo"));
        assert!(may_start_job("sleep 1&"));
        for text in ["a && b", "a 2>&1", "a &>x", "a |& b", "a <&3"] {
            assert!(!may_start_job(text), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn quoted_text_is_one_word_of_the_same_bytes(text in "[^\0]{0,60}") {
            let mut out = String::from("printf %s ");
            quote(&mut out, &text);
            let output = Command::new("bash").args(["-c", &out]).output().expect("bash runs");
            prop_assert_eq!(output.stdout, text.as_bytes());
        }

        #[test]
        fn no_line_of_bytes_upsets_the_reader(line in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse_report(&line);
        }
    }
}
