//! From the text of a Dockerfile to its instructions: comments, continuations and here-documents.

use super::DockerfileError;

/// An instruction with all its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instruction {
    /// The first line, from 1.
    pub(super) line: usize,
    /// In capital letters.
    pub(super) name: String,
    /// What follows the name, in one line.
    pub(super) rest: String,
    /// The here-document, if it has one.
    pub(super) document: Option<HereDocument>,
}

/// The lines after an instruction up to a delimiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HereDocument {
    pub(super) delimiter: String,
    pub(super) text: String,
}

/// Splits a Dockerfile into its instructions.
pub(super) fn instructions(text: &str) -> Result<Vec<Instruction>, DockerfileError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut all = Vec::new();
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let mut may_direct = true;
    while let Some((number, line)) = lines.next() {
        let trimmed = line.trim();
        if let Some(comment) = trimmed.strip_prefix('#') {
            may_direct = may_direct && directive(number, comment)?;
            continue;
        }
        may_direct = false;
        if trimmed.is_empty() {
            continue;
        }
        let mut whole = String::new();
        let mut part = Some(line);
        while let Some(line) = part {
            match continued(line) {
                None => {
                    whole.push_str(line);
                    break;
                }
                Some(begin) => whole.push_str(begin),
            }
            part = lines.by_ref().map(|(_, line)| line).find(|line| {
                let line = line.trim();
                !line.is_empty() && !line.starts_with('#')
            });
        }
        let whole = whole.trim();
        let (name, rest) = whole.split_once(char::is_whitespace).unwrap_or((whole, ""));
        let name = name.to_ascii_uppercase();
        let rest = rest.trim().to_owned();
        let delimiter = if name == "RUN" { here_delimiter(&rest) } else { None };
        let document = match delimiter {
            None => None,
            Some(found) => Some(document(number, &found, &mut lines)?),
        };
        all.push(Instruction { line: number, name, rest, document });
    }
    Ok(all)
}

/// Reads a comment at the beginning of the file. Returns whether another directive may follow.
fn directive(line: usize, comment: &str) -> Result<bool, DockerfileError> {
    let Some((name, value)) = comment.split_once('=') else { return Ok(false) };
    match name.trim().to_ascii_lowercase().as_str() {
        "syntax" | "check" => Ok(true),
        "escape" if value.trim() == "\\" => Ok(true),
        "escape" => {
            let reason = "the directive escape: only \\ is supported";
            Err(DockerfileError::new(line, reason))
        }
        _ => Ok(false),
    }
}

/// The line without its backslash, if it continues on the next one.
fn continued(line: &str) -> Option<&str> {
    line.trim_end().strip_suffix('\\')
}

struct Delimiter {
    word: String,
    /// `<<-`: tabs before lines do not count.
    strips_tabs: bool,
}

/// The delimiter of a here-document in a command.
fn here_delimiter(rest: &str) -> Option<Delimiter> {
    let mut quote = None;
    for (at, letter) in rest.char_indices() {
        match (quote, letter) {
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            (None, '<') if is_opening(rest, at) => {
                let after = &rest[at + 2..];
                let strips_tabs = after.starts_with('-');
                let after = after.strip_prefix('-').unwrap_or(after);
                let after = after.trim_start_matches(['"', '\'']);
                let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                let word: String = after.chars().take_while(|letter| is_part(*letter)).collect();
                let starts_well = word.starts_with(|letter: char| !letter.is_ascii_digit());
                return starts_well.then_some(Delimiter { word, strips_tabs });
            }
            _ => {}
        }
    }
    None
}

/// Whether `<<` begins here, and neither `<<<` nor the end of one.
fn is_opening(rest: &str, at: usize) -> bool {
    let from = &rest[at..];
    from.starts_with("<<") && !from.starts_with("<<<") && !rest[..at].ends_with('<')
}

fn document<'a>(
    line: usize,
    delimiter: &Delimiter,
    lines: &mut impl Iterator<Item = (usize, &'a str)>,
) -> Result<HereDocument, DockerfileError> {
    let mut text = String::new();
    for (_, line) in lines {
        let line = if delimiter.strips_tabs { line.trim_start_matches('\t') } else { line };
        if line == delimiter.word {
            return Ok(HereDocument { delimiter: delimiter.word.clone(), text });
        }
        text.push_str(line);
        text.push('\n');
    }
    let reason = format!("RUN: the here-document has no end: {}", delimiter.word);
    Err(DockerfileError::new(line, reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(text: &str) -> Vec<(usize, String, String)> {
        let all = instructions(text).unwrap();
        all.into_iter().map(|one| (one.line, one.name, one.rest)).collect()
    }

    fn row(line: usize, name: &str, rest: &str) -> (usize, String, String) {
        (line, name.to_owned(), rest.to_owned())
    }

    #[test]
    fn comments_and_continuations_are_joined() {
        let text = "# syntax=docker/dockerfile:1\n\nfrom  a\nRUN one && \\\n  # why\n\n  two \\\n  three\n#end\nCMD x\\";
        let expected =
            [row(3, "FROM", "a"), row(4, "RUN", "one &&   two   three"), row(10, "CMD", "x")];
        assert_eq!(rows(text), expected);
    }

    #[test]
    fn a_here_document_belongs_to_its_instruction() {
        let all = instructions(
            "RUN <<-EOF cat\n\ta\n\tEOF\nRUN echo '<<X' <<<b\nRUN cat <<'E' > f\n$x\nE\n",
        )
        .unwrap();
        let text = |at: usize| all[at].document.as_ref().map(|one| one.text.as_str());
        assert_eq!((text(0), text(1), text(2)), (Some("a\n"), None, Some("$x\n")));
        assert!(instructions("RUN <<EOF\na\n").unwrap_err().to_string().contains("no end"));
    }

    #[test]
    fn another_escape_character_is_refused() {
        let error = instructions("# escape=`\nFROM a\n").unwrap_err();
        assert_eq!(error.line, 1);
        assert!(instructions("FROM a\n# escape=`\n").is_ok(), "a comment later is none");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            if let Ok(all) = instructions(&text) {
                prop_assert!(all.len() <= text.lines().count());
                prop_assert!(all.windows(2).all(|two| two[0].line < two[1].line));
            }
        }
    }
}
