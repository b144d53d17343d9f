//! Searches a sandbox for text that must not be inside.

use crate::{Sandbox, json};

const SEARCH: &str = include_str!("search.py");

impl Sandbox {
    /// Finds every place inside the sandbox that contains a word: file content, file names,
    /// symbolic links, environments, command lines, and the memory of processes that may be read.
    /// The caller passes the word in two halves, so that the search does not find itself.
    ///
    /// # Panics
    /// When the search fails.
    #[track_caller]
    #[must_use]
    pub fn search(&self, halves: [&str; 2]) -> Vec<String> {
        let argv = ["python3", "-c", SEARCH, halves[0], halves[1]];
        let answer = self.post("/exec", &json!({"argv": argv})).expect(200).json();
        assert_eq!(answer["exit_code"], 0, "{answer}");
        let read = answer["stderr"].as_str().and_then(|text| text.split(' ').next()?.parse().ok());
        assert!(read > Some(500), "it read {read:?} files");
        let found = answer["stdout"].as_str().expect("text").lines();
        found.map(str::to_owned).collect()
    }
}
