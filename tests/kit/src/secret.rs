//! A search for what is not to be in a sandbox.

use crate::{Sandbox, json};

const SEARCH: &str = include_str!("search.py");

impl Sandbox {
    /// Every place inside where a word is: files, names and links, environments and command lines
    /// of processes, and the memory of those that may be looked at. In two halves, so that the
    /// search does not find itself.
    ///
    /// # Panics
    /// When it could not look.
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
