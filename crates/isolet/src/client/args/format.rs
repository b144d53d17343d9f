//! `--output`: whether a command prints text for people or JSON for scripts.

use clap::{Args, ValueEnum};

/// How results are printed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for people; lists are tables
    Table,
    /// JSON for scripts
    Json,
}

// The options of every command that prints results. A doc comment would replace the command's own help.
#[derive(Args)]
pub(crate) struct OutputFormat {
    /// Print a table or other text for people, or JSON for scripts [default: table]
    #[arg(
        long,
        short,
        global = true,
        value_name = "table|json",
        hide_possible_values = true,
        overrides_with = "json"
    )]
    output: Option<Format>,
    /// Print JSON: short for --output json
    #[arg(long, global = true, overrides_with = "output")]
    json: bool,
}

impl OutputFormat {
    /// Whether JSON is printed.
    pub(crate) fn is_json(&self) -> bool {
        self.json || self.output == Some(Format::Json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        format: OutputFormat,
    }

    fn is_json(words: &[&str]) -> Option<bool> {
        let words = ["x"].iter().chain(words);
        Some(Command::try_parse_from(words).ok()?.format.is_json())
    }

    #[test]
    fn both_spellings_select_json_and_the_last_one_wins() {
        assert_eq!(is_json(&[]), Some(false));
        for words in [&["--json"][..], &["-o", "json"], &["--output=json"], &["-ojson"]] {
            assert_eq!(is_json(words), Some(true), "{words:?}");
        }
        assert_eq!(is_json(&["--json", "-o", "table"]), Some(false));
        assert_eq!(is_json(&["-o", "table", "--json"]), Some(true));
        assert_eq!(is_json(&["-o", "yaml"]), None);
    }
}
