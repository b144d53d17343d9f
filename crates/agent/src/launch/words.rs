//! Parses command lines that are only plain words, and finds programs.

use isolet_wire::request::StartExec;
use std::collections::BTreeMap;
use std::ffi::CString;

/// The default search path for programs, as in bash.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// First words that bash handles itself; sorted.
const TAKEN: &[&str] = &[
    ".",
    ":",
    "[",
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "case",
    "cd",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "coproc",
    "declare",
    "dirs",
    "disown",
    "do",
    "done",
    "echo",
    "elif",
    "else",
    "enable",
    "esac",
    "eval",
    "exec",
    "exit",
    "export",
    "false",
    "fc",
    "fg",
    "fi",
    "for",
    "function",
    "getopts",
    "hash",
    "help",
    "history",
    "if",
    "in",
    "jobs",
    "kill",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "return",
    "select",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "test",
    "then",
    "time",
    "times",
    "trap",
    "true",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "until",
    "wait",
    "while",
];

/// The words of a line that `bash -c` would execute unchanged, because starting without bash is
/// twice as fast. `None` for any other line.
#[must_use]
pub(crate) fn split(text: &str, env: &BTreeMap<String, String>) -> Option<Vec<String>> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"_./=:,@%+-".contains(&b);
    let words: Vec<&str> = text.split(' ').collect();
    if words.iter().any(|word| word.is_empty() || !word.bytes().all(allowed)) {
        return None;
    }
    let first = words[0];
    if first.contains('=') || first.starts_with('%') || TAKEN.binary_search(&first).is_ok() {
        return None;
    }
    // Both make bash run something from the environment first.
    let own = |name: &String| {
        name.starts_with("BASH_FUNC_")
            || matches!(name.as_str(), "BASH_ENV" | "SHELLOPTS" | "BASHOPTS" | "POSIXLY_CORRECT")
    };
    if env.keys().any(own) {
        return None;
    }
    Some(words.into_iter().map(str::to_owned).collect())
}

/// Adds the variables that bash itself would have added.
pub(crate) fn complete_environment(request: &StartExec, envp: &mut Vec<CString>) {
    for (name, value) in [("PWD", request.cwd.as_str()), ("SHLVL", "0")] {
        if !request.env.contains_key(name)
            && let Ok(entry) = CString::new(format!("{name}={value}"))
        {
            envp.push(entry);
        }
    }
}

/// The candidate paths of `name`, in order.
#[must_use]
pub(crate) fn programs(name: &str, path: &str) -> Vec<String> {
    if name.contains('/') {
        return vec![name.to_owned()];
    }
    path.split(':')
        .map(|dir| if dir.is_empty() { format!("./{name}") } else { format!("{dir}/{name}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_without_meaning_to_bash_are_plain() {
        let none = BTreeMap::new();
        assert!(TAKEN.is_sorted());
        assert_eq!(split("ls -l /tmp", &none).map(|w| w.len()), Some(3));
        for text in ["cd /", "A=1 ls", "ls *", "ls  x", "a|b", "", "%1", "if x", "ls ~", "time ls"]
        {
            assert_eq!(split(text, &none), None, "{text}");
        }
        let env = BTreeMap::from([("BASH_FUNC_ls%%".to_owned(), "() { :; }".to_owned())]);
        assert_eq!(split("ls", &env), None);
    }
}
