//! What has passed so far, in a file that the next run continues.

use super::faults::Fault;
use isolet_kit::{Value, json};
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The directory of notes.
pub(super) fn folder() -> PathBuf {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/soak"));
    fs::create_dir_all(&folder).expect("a directory");
    folder
}

pub(super) struct Note {
    path: PathBuf,
    content: Value,
}

impl Note {
    /// Reads the note of a class of sandboxes, or of `both`, or begins a new one for another commit.
    pub(super) fn open(class: &str) -> Self {
        let path = folder().join(format!("fleet-{class}.json"));
        let commit = run("git", &["describe", "--always", "--dirty", "--abbrev=12"]);
        let text = fs::read_to_string(&path).unwrap_or_default();
        let former: Value = text.parse().unwrap_or_default();
        let content = if former["commit"] == commit.as_str() {
            former
        } else {
            let begun = run("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]);
            json!({"commit": commit, "class": class, "begun": begun, "passed": {}})
        };
        Self { path, content }
    }

    fn count(&self, fault: Fault) -> usize {
        let count = self.content["passed"][fault.name()]["times"].as_u64();
        usize::try_from(count.unwrap_or_default()).unwrap_or_default()
    }

    /// The faults that have not passed yet, each as often as it is missing.
    pub(super) fn missing(&self) -> Vec<Fault> {
        let missing = Fault::ALL.iter().flat_map(|(fault, _, wanted)| {
            std::iter::repeat_n(*fault, wanted.saturating_sub(self.count(*fault)))
        });
        missing.collect()
    }

    /// Records that everything held after a fault.
    pub(super) fn passed(&mut self, fault: Fault, took: Duration) {
        let times = self.count(fault) + 1;
        let longest = &self.content["passed"][fault.name()]["longest_s"];
        let longest = longest.as_f64().unwrap_or_default().max(took.as_secs_f64());
        let longest = (longest * 10.0).round() / 10.0;
        self.content["passed"][fault.name()] = json!({"times": times, "longest_s": longest});
        self.content["last"] = run("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]).into();
        let new = self.path.with_extension("new");
        fs::write(&new, format!("{:#}\n", self.content)).expect("the note is written");
        fs::rename(&new, &self.path).expect("the note is replaced");
        println!("{} {times}: {:.1} s until all is well", fault.name(), took.as_secs_f64());
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, in {}", self.content, self.path.display())
    }
}

fn run(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_default()
}
