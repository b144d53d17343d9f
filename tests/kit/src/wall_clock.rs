//! A wall clock of a program that a test steps, independently of the machine's clock.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The wall clock of every program that is started with its variables.
#[derive(Debug)]
pub struct WallClock {
    library: PathBuf,
    shift: PathBuf,
}

impl WallClock {
    /// A clock that agrees with that of the machine. Its files are in the directory.
    ///
    /// # Panics
    /// When the library cannot be built.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        let library = directory.join("wall.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/wall_clock.c");
        let mut compiler = Command::new("cc");
        let built = compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
        assert!(built.expect("cc runs").success());
        let clock = Self { library, shift: directory.join("shift") };
        clock.step(0);
        clock
    }

    /// The variables of a program that follows the clock.
    ///
    /// # Panics
    /// When the path of the directory is not UTF-8.
    #[must_use]
    pub fn variables(&self) -> [(&'static str, &str); 2] {
        [
            ("LD_PRELOAD", self.library.to_str().expect("UTF-8")),
            ("WALL_CLOCK_SHIFT", self.shift.to_str().expect("UTF-8")),
        ]
    }

    /// Sets by how many seconds it is ahead of the clock of the machine.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn step(&self, seconds: i64) {
        // One write of constant length, so that a reader sees the old number or the new one.
        fs::write(&self.shift, format!("{seconds:<20}")).expect("writes");
    }
}
