//! The state of a bash as text: the line that requests it, the parts that are kept, and the lines
//! that restore it. This module only handles text.
//!
//! A fork of bash (a subshell) writes the state, so that bash itself does not change: `$?` and `$!`
//! stay, no trap runs, and no option interferes. The fork writes its parts, separated by NUL, to a
//! reopened [`FD_TEXT`], and reports like a step. The condition of an `if` never ends the shell,
//! runs no ERR or DEBUG trap, and leaves `$?` at 0 whatever happens to the fork.

use super::bash_protocol::{FD_NULL, FD_STATUS, FD_TEXT, quote, request_report};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Maximum size of the fork's output, in KiB, which the kernel enforces.
const DUMP_KIB_MAX: usize = 2048;
/// The same limit in bytes, for the reader.
pub(crate) const DUMP_BYTES_MAX: usize = DUMP_KIB_MAX * 1024;
/// The parts of the output, in this order.
const PARTS: [&str; 7] =
    ["declare -p", "declare -f", "alias -p", "shopt -p", "set +o", "umask", "pwd"];
/// Number of parts of a state. Each is evaluated separately, so that a failure in one does not
/// affect the others.
const STATE_PARTS: usize = 6;
/// Variables of bash itself, of the agent, or about the process; sorted.
const OWN: &[&str] = &[
    "BASH",
    "BASHOPTS",
    "BASHPID",
    "BASH_ALIASES",
    "BASH_ARGC",
    "BASH_ARGV",
    "BASH_ARGV0",
    "BASH_CMDS",
    "BASH_COMMAND",
    "BASH_EXECUTION_STRING",
    "BASH_LINENO",
    "BASH_LOADABLES_PATH",
    "BASH_MONOSECONDS",
    "BASH_SOURCE",
    "BASH_SUBSHELL",
    "BASH_VERSINFO",
    "BASH_VERSION",
    "BASH_XTRACEFD",
    "COMP_WORDBREAKS",
    "DIRSTACK",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "EUID",
    "FUNCNAME",
    "GROUPS",
    "HISTCMD",
    "HISTFILE",
    "HOSTNAME",
    "HOSTTYPE",
    "LINENO",
    "MACHTYPE",
    "MAILCHECK",
    "OSTYPE",
    "PIPESTATUS",
    "POSIXLY_CORRECT",
    "PPID",
    "PROMPT_COMMAND",
    "PS1",
    "PS2",
    "PWD",
    "RANDOM",
    "SECONDS",
    "SHELLOPTS",
    "SHLVL",
    "SRANDOM",
    "UID",
    "_",
];
/// Variables that every bash has at its start. A missing one was unset.
const STANDARD: [&str; 5] = ["IFS", "OLDPWD", "OPTERR", "OPTIND", "PS4"];
/// Line editors. Setting one, even to its current value, makes bash drop the lines that it has not
/// run.
const EDITORS: [&str; 2] = ["emacs", "vi"];
/// Options that change how lines are read or whether the shell survives. They are set last, in this
/// order.
const LATE: [&str; 2] = ["posix", "errexit"];
/// Options that print every line of the agent on standard error.
const LOUD: [&str; 2] = ["verbose", "xtrace"];

/// Appends the line that makes bash write its state; the fork reports step `number`.
pub(crate) fn dump(out: &mut String, word: &str, number: u64) {
    let place = format!("/proc/self/fd/{FD_TEXT}");
    // The traps of bash are written before the fork sets its own.
    let _ = write!(
        out,
        "if {{ ( \\{word} trap -p >|{place}; \\{word} trap - DEBUG ERR RETURN INT; \
         \\{word} trap '' XFSZ; \\{word} ulimit -f {DUMP_KIB_MAX}; {{ "
    );
    for part in PARTS {
        let _ = write!(out, "\\{word} printf '\\0'; \\{word} {part}; ");
    }
    let _ = writeln!(
        out,
        "IFS=' '; \\{word} printf '\\0%s\\0end' \"${{*@Q}}\"; }} >>{place}; \
         \\{word} echo {number} 0 {number}:0 \"$-\" >&{FD_STATUS}; \
         \\{word} exit 1 ) >&{FD_NULL}; }} 2>&{FD_NULL}; then :; fi"
    );
}

/// Builds a state from the fork's output; `env` is the environment that bash was started with.
/// `None` if the output is incomplete.
#[must_use]
pub(crate) fn compose(raw: &[u8], env: &BTreeMap<String, String>) -> Option<Vec<u8>> {
    let parts: Vec<&[u8]> = raw.split(|byte| *byte == 0).collect();
    let [traps, variables, functions, aliases, shopt, set, umask, cwd, words, b"end"] = parts[..]
    else {
        return None;
    };
    let mut out = Vec::with_capacity(raw.len());
    place(&mut out, umask, cwd.strip_suffix(b"\n")?);
    out.push(0);
    values(&mut out, variables, env);
    if !words.is_empty() {
        out.extend_from_slice(b"set -- ");
        out.extend_from_slice(words);
    }
    out.push(0);
    out.extend_from_slice(aliases);
    // A pattern in a function can be parsed only with extglob, and an alias would be expanded in a
    // function.
    out.extend_from_slice(b"shopt -s extglob; shopt -u expand_aliases");
    out.push(0);
    out.extend_from_slice(functions);
    out.push(0);
    options(&mut out, shopt, set);
    out.push(0);
    out.extend_from_slice(traps);
    out.push(0);
    loud(&mut out, set);
    Some(out)
}

/// Appends the lines that make bash restore the state in [`FD_TEXT`], as step `number`. Error
/// output goes back to that file and is empty if everything was restored.
pub(crate) fn restore(out: &mut String, word: &str, number: u64) {
    let _ = write!(out, "\\{word} mapfile -d '' __ist <&{FD_TEXT}\n{{ ");
    for part in 0..STATE_PARTS {
        let _ = write!(out, "\\{word} eval \"${{__ist[{part}]-}}\"; ");
    }
    let _ = writeln!(
        out,
        "}} <&{FD_NULL} >&{FD_NULL} 2>|/proc/self/fd/{FD_TEXT}; \
         {{ \\{word} eval \"${{__ist[{STATE_PARTS}]-}}\"; \\{word} unset -v __ist; }} 2>&{FD_NULL}; \
         __ise={number}:0 PS1= PROMPT_COMMAND="
    );
    request_report(out, word, number);
}

/// Appends directory and umask.
fn place(out: &mut Vec<u8>, umask: &[u8], cwd: &[u8]) {
    out.extend_from_slice(b"umask ");
    out.extend_from_slice(umask);
    out.extend_from_slice(b"CDPATH= cd -- ");
    quote_bytes(out, cwd);
}

fn quote_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            let mut quoted = String::new();
            quote(&mut quoted, text);
            out.extend_from_slice(quoted.as_bytes());
        }
        Err(_) => {
            out.extend_from_slice(b"$'");
            bytes
                .iter()
                .for_each(|byte| out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()));
            out.push(b'\'');
        }
    }
}

fn lines(part: &[u8]) -> impl Iterator<Item = &[u8]> {
    part.split_inclusive(|byte| *byte == b'\n')
}

/// Parses a line of `declare -p` into its flags and the variable's name.
fn declared(line: &[u8]) -> Option<(&[u8], &str)> {
    let rest = line.strip_prefix(b"declare -")?;
    let space = rest.iter().position(|byte| *byte == b' ')?;
    let flags = &rest[..space];
    let name = &rest[space + 1..];
    let end = name.iter().position(|byte| matches!(byte, b'=' | b'\n')).unwrap_or(name.len());
    let name = std::str::from_utf8(&name[..end]).ok()?;
    super::bash_protocol::is_name(name).then_some((flags, name))
}

/// Appends all variables except bash's own, and unsets those that the next bash would have and this
/// one has not.
fn values(out: &mut Vec<u8>, variables: &[u8], env: &BTreeMap<String, String>) {
    let mut missing: Vec<&str> = env.keys().map(String::as_str).chain(STANDARD).collect();
    missing.retain(|name| super::bash_protocol::is_name(name) && OWN.binary_search(name).is_err());
    let mut hidden = Vec::new();
    let mut kept = false;
    for line in lines(variables) {
        // A value is on one line. In a bash where it is not, the following lines belong to the
        // first.
        if let Some((flags, name)) = declared(line) {
            kept = OWN.binary_search(&name).is_err() && !name.starts_with("__is");
            missing.retain(|other| *other != name);
            if kept && env.contains_key(name) && !flags.contains(&b'x') {
                hidden.push(name);
            }
        }
        if kept {
            out.extend_from_slice(line);
        }
    }
    for (builtin, names) in [("unset -v", missing), ("declare +x", hidden)] {
        if !names.is_empty() {
            out.extend_from_slice(format!("{builtin} {}\n", names.join(" ")).as_bytes());
        }
    }
}

/// Appends a line of the agent, which no function of the tenant can intercept.
fn put(out: &mut Vec<u8>, line: &[u8]) {
    out.extend_from_slice(b"\\command builtin ");
    out.extend_from_slice(line);
}

/// The name in a `set -o NAME` line.
fn option(line: &[u8]) -> &str {
    let name = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    std::str::from_utf8(name).unwrap_or_default().trim_end()
}

fn options(out: &mut Vec<u8>, shopt: &[u8], set: &[u8]) {
    for line in lines(shopt).filter(|line| !line.ends_with(b" restricted_shell\n")) {
        put(out, line);
    }
    let other = [LATE, LOUD, EDITORS].concat();
    lines(set).filter(|line| !other.contains(&option(line))).for_each(|line| put(out, line));
    for late in LATE {
        lines(set).filter(|line| option(line) == late).for_each(|line| put(out, line));
    }
}

fn loud(out: &mut Vec<u8>, set: &[u8]) {
    let loud = |line: &&[u8]| line.starts_with(b"set -o") && LOUD.contains(&option(line));
    lines(set).filter(loud).for_each(|line| put(out, line));
}

#[cfg(test)]
#[path = "state_text_test.rs"]
mod tests;
