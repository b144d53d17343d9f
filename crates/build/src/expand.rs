//! Variables in the text of a step: `$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+other}`. A
//! backslash before `$` or another backslash makes it a plain character.

use std::collections::HashMap;

/// How deep defaults may contain variables.
const DEPTH_MAX: usize = 8;

/// Replaces the variables of a text. `find` returns the value of a variable; one without a value
/// stands for nothing. `${` without an end, and any other use of `$`, stays as it is.
///
/// # Errors
/// The reason, for people, if the result would have more than `bytes_max` bytes.
pub(crate) fn expand<'v>(
    text: &str,
    bytes_max: usize,
    find: &dyn Fn(&str) -> Option<&'v str>,
) -> Result<String, String> {
    let mut expansion = Expansion { find, out: String::new(), bytes_max };
    expansion.text(text, 0)?;
    Ok(expansion.out)
}

/// A result that is being written.
struct Expansion<'f, 'v> {
    find: &'f dyn Fn(&str) -> Option<&'v str>,
    out: String,
    bytes_max: usize,
}

impl Expansion<'_, '_> {
    fn put(&mut self, piece: &str) -> Result<(), String> {
        if self.out.len() + piece.len() > self.bytes_max {
            return Err(format!("its variables expand to more than {} bytes", self.bytes_max));
        }
        self.out.push_str(piece);
        Ok(())
    }

    fn text(&mut self, text: &str, depth: usize) -> Result<(), String> {
        let ends = if depth < DEPTH_MAX { closing_braces(text) } else { HashMap::new() };
        let mut at = 0;
        while let Some(found) = text[at..].find(['$', '\\']) {
            self.put(&text[at..at + found])?;
            at += found;
            at += if text.as_bytes()[at] == b'\\' {
                self.escaped(&text[at..])?
            } else {
                self.variable(&text[at..], ends.get(&at).map(|end| end - at), depth)?
            };
        }
        self.put(&text[at..])
    }

    /// Writes what stands behind a backslash. Returns how many bytes it takes.
    fn escaped(&mut self, from: &str) -> Result<usize, String> {
        match from.as_bytes().get(1) {
            Some(b'$' | b'\\') => self.put(&from[1..2]).map(|()| 2),
            _ => self.put("\\").map(|()| 1),
        }
    }

    /// Writes the value of the variable that a text begins with. `end` is the index of its brace.
    /// Returns how many bytes its name takes.
    fn variable(&mut self, from: &str, end: Option<usize>, depth: usize) -> Result<usize, String> {
        if from.starts_with("${") {
            let Some(end) = end else { return self.put("$").map(|()| 1) };
            if !self.braced(&from[2..end], depth)? {
                self.put(&from[..=end])?;
            }
            return Ok(end + 1);
        }
        let length = name_length(&from[1..]);
        match length {
            0 => self.put("$")?,
            length => self.put((self.find)(&from[1..=length]).unwrap_or_default())?,
        }
        Ok(1 + length)
    }

    /// Writes the value of what stands between braces; `false` if it is of no known form.
    fn braced(&mut self, inner: &str, depth: usize) -> Result<bool, String> {
        let length = name_length(inner);
        let (name, other) = inner.split_at(length);
        if name.is_empty() {
            return Ok(false);
        }
        let value = (self.find)(name).filter(|value| !value.is_empty());
        match (value, other.strip_prefix(":-"), other.strip_prefix(":+")) {
            (value, None, None) if other.is_empty() => self.put(value.unwrap_or_default())?,
            (_, None, None) => return Ok(false),
            (Some(value), Some(_), _) => self.put(value)?,
            (None, Some(default), _) => self.text(default, depth + 1)?,
            (Some(_), _, Some(other)) => self.text(other, depth + 1)?,
            (None, _, Some(_)) => {}
        }
        Ok(true)
    }
}

/// The index of the brace that ends each `${`, by the index of its `$`, in one pass over the text.
fn closing_braces(text: &str) -> HashMap<usize, usize> {
    let mut open: Vec<usize> = Vec::new();
    let mut ends = HashMap::new();
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'{' if at > 0 && bytes[at - 1] == b'$' => open.push(at - 1),
            b'}' => ends.extend(open.pop().map(|begin| (begin, at))),
            _ => {}
        }
    }
    ends
}

/// How many bytes at the beginning of a text are the name of a variable.
fn name_length(text: &str) -> usize {
    let is_part = |(at, byte): (usize, u8)| {
        byte == b'_' || byte.is_ascii_alphabetic() || at > 0 && byte.is_ascii_digit()
    };
    text.bytes().enumerate().take_while(|part| is_part(*part)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(name: &str) -> Option<&'static str> {
        match name {
            "A" => Some("1"),
            "PATH" => Some("/bin"),
            "EMPTY" => Some(""),
            _ => None,
        }
    }

    fn with(text: &str) -> String {
        expand(text, usize::MAX, &value).unwrap()
    }

    #[test]
    fn variables_are_replaced_as_in_a_dockerfile() {
        for (text, expected) in [
            ("/opt/bin:$PATH", "/opt/bin:/bin"),
            ("${A}x$A.y", "1x1.y"),
            ("${B:-two}", "two"),
            ("${EMPTY:-three}", "three"),
            ("${B:-${A}}", "1"),
            ("${A:+set}${B:+set}", "set"),
            ("$B", ""),
            (r"\$A \\ \n", r"$A \ \n"),
            ("$", "$"),
            ("$1 $-", "$1 $-"),
            ("${A", "${A"),
            ("${A ${A}", "${A 1"),
            ("${B:-${A} ${EMPTY:-${PATH}}}", "1 /bin"),
            (r"\${A} ${A}", "${A} 1"),
            ("${A:=x}", "${A:=x}"),
            ("${}", "${}"),
        ] {
            assert_eq!(with(text), expected, "{text}");
        }
    }

    /// Each variable once was a copy of its value, so that a text of some bytes could fill the memory.
    #[test]
    fn a_result_has_a_limit_wherever_it_grows() {
        let large = "x".repeat(1000);
        let find = |name: &str| (name == "A").then_some(large.as_str());
        for text in ["$A$A", "${A}${A}", "${B:-$A$A}", "${A:-x}${A:-x}", "${A:+$A$A}"] {
            assert_eq!(expand(text, 2000, &find).unwrap().len(), 2000, "{text}");
            assert!(expand(text, 1999, &find).unwrap_err().contains("1999 bytes"), "{text}");
        }
        let many = "$A".repeat(1 << 20);
        assert!(expand(&many, 4096, &find).is_err());
    }

    /// The end of each was once looked for up to the end of the text.
    #[test]
    fn variables_that_are_not_closed_take_linear_time() {
        for piece in ["${", "${A:-", "${A:-${"] {
            let text = piece.repeat(1 << 20);
            assert_eq!(with(&text), text);
        }
    }

    proptest! {
        #[test]
        fn a_text_without_variables_stays(text in "[^$\\\\]*") {
            prop_assert_eq!(with(&text), text);
        }

        #[test]
        fn any_text_has_a_result(text in any::<String>(), nested in "(\\$\\{A:-){0,40}x\\}{0,40}") {
            let _ = (with(&text), with(&nested));
        }

        #[test]
        fn an_escaped_text_is_itself(text in any::<String>()) {
            let escaped = text.replace('\\', "\\\\").replace('$', "\\$");
            prop_assert_eq!(with(&escaped), text);
        }
    }
}
