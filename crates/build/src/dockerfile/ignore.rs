//! `.dockerignore`: which files of a context are left out.

use globset::{GlobBuilder, GlobMatcher};

/// The patterns of a `.dockerignore`. The last one that matches decides.
#[derive(Debug, Default)]
pub(super) struct Ignored(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    glob: GlobMatcher,
    /// Whether it names what is not left out.
    is_exception: bool,
}

impl Ignored {
    /// Reads patterns, one in each line.
    ///
    /// # Errors
    /// The line and the reason, for people.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut rules = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (is_exception, line) = match line.strip_prefix('!') {
                Some(rest) => (true, rest.trim()),
                None => (false, line),
            };
            let parts: Vec<&str> =
                line.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
            if parts.is_empty() {
                continue;
            }
            let glob = GlobBuilder::new(&parts.join("/")).literal_separator(true).build();
            let glob =
                glob.map_err(|error| format!(".dockerignore, line {}: {error}", index + 1))?;
            rules.push(Rule { glob: glob.compile_matcher(), is_exception });
        }
        Ok(Self(rules))
    }

    /// Whether a path is left out.
    pub(super) fn leaves_out(&self, path: &str) -> bool {
        let mut out = false;
        for rule in &self.0 {
            let above = path.match_indices('/').map(|(at, _)| &path[..at]);
            if rule.glob.is_match(path) || above.into_iter().any(|path| rule.glob.is_match(path)) {
                out = !rule.is_exception;
            }
        }
        out
    }

    /// Whether something below a directory that is left out may not be.
    pub(super) fn has_exceptions(&self) -> bool {
        self.0.iter().any(|rule| rule.is_exception)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pattern_that_matches_decides() {
        let text = "# comment\n\n*.log\n/build/\n!build/keep\n**/node_modules\nsecret?\n./a/b\n";
        let ignored = Ignored::read(text).unwrap();
        for path in [
            "x.log",
            "build",
            "build/x",
            "build/x/y",
            "node_modules",
            "a/node_modules/x",
            "secret1",
            "a/b/c",
        ] {
            assert!(ignored.leaves_out(path), "{path}");
        }
        for path in ["a/x.log", "build/keep", "build/keep/x", "src/build", "secret", "a/bc"] {
            assert!(!ignored.leaves_out(path), "{path}");
        }
        assert!(ignored.has_exceptions());
        assert!(Ignored::read("a\n[").unwrap_err().contains("line 2"));
        assert!(!Ignored::read("").unwrap().leaves_out("a"));
    }
}
