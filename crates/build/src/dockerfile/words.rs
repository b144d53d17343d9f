//! The words of an instruction. Quotes are removed; what stays plain in the Dockerfile is escaped, so
//! that the variables of the result can be replaced later.

/// Splits a text at white space, as `ENV`, `LABEL`, `COPY` and others do.
///
/// # Errors
/// The reason, for an open quote.
pub(super) fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            letter if letter.is_whitespace() => words.extend(word.take()),
            '\'' => {
                let own = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some('\'') => break,
                        Some(letter) => push_plain(own, letter),
                        None => return Err("a quote ' is not closed".to_owned()),
                    }
                }
            }
            '"' => {
                let own = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some('"') => break,
                        Some('\\') => match letters.next() {
                            Some(letter @ ('"' | '$' | '\\')) => push_plain(own, letter),
                            Some(letter) => {
                                push_plain(own, '\\');
                                push_plain(own, letter);
                            }
                            None => return Err("a quote \" is not closed".to_owned()),
                        },
                        Some(letter) => own.push(letter),
                        None => return Err("a quote \" is not closed".to_owned()),
                    }
                }
            }
            '\\' => {
                let own = word.get_or_insert_default();
                push_plain(own, letters.next().unwrap_or('\\'));
            }
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Adds a letter that begins no variable.
fn push_plain(to: &mut String, letter: char) {
    if matches!(letter, '$' | '\\') {
        to.push('\\');
    }
    to.push(letter);
}

/// Quotes a word for a shell.
pub(super) fn shell_quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:=@%+,".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expand::expand;
    use proptest::prelude::*;

    fn expanded(text: &str) -> Vec<String> {
        let find = |name: &str| (name == "A").then_some("1 2");
        let all = split(text).unwrap();
        all.iter().map(|word| expand(word, usize::MAX, &find).unwrap()).collect()
    }

    #[test]
    fn quotes_and_escapes_are_those_of_a_dockerfile() {
        for (text, expected) in [
            ("a  b\tc", vec!["a", "b", "c"]),
            ("A=$A B='$A' C=\"$A\"", vec!["A=1 2", "B=$A", "C=1 2"]),
            (r#"a\ b "c d" 'e f'"#, vec!["a b", "c d", "e f"]),
            (r#"\$A "\$A" "\n""#, vec!["$A", "$A", "\\n"]),
            ("a=''", vec!["a="]),
            ("", vec![]),
        ] {
            assert_eq!(expanded(text), expected, "{text}");
        }
        assert!(split("a 'b").is_err() && split("\"b\\").is_err());
    }

    proptest! {
        #[test]
        fn a_quoted_text_is_one_word_with_that_text(text in "[^']*") {
            prop_assert_eq!(expanded(&format!("'{text}'")), vec![text]);
        }

        #[test]
        fn any_text_is_split_or_refused(text in any::<String>()) {
            let _ = split(&text);
        }
    }

    #[test]
    fn words_for_a_shell_are_quoted_if_they_must_be() {
        assert_eq!(shell_quoted("a/b-c.d"), "a/b-c.d");
        assert_eq!(shell_quoted("it's"), "'it'\\''s'");
        assert_eq!(shell_quoted(""), "''");
    }
}
