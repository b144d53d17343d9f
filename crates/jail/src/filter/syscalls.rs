//! The numbers of the system calls that this version knows, for each architecture (`syscalls.txt`).

use std::collections::BTreeMap;

const SOURCE: &str = include_str!("syscalls.txt");

/// A processor architecture that seccomp programs are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "a program uses its own architecture, and tests use both")]
pub(super) enum Architecture {
    X86_64,
    Aarch64,
}

impl Architecture {
    /// That of this program.
    #[cfg(target_arch = "x86_64")]
    pub(super) const HOST: Self = Self::X86_64;
    /// That of this program.
    #[cfg(target_arch = "aarch64")]
    pub(super) const HOST: Self = Self::Aarch64;

    /// What `seccomp_data.arch` holds: the ELF machine, with the flags for 64 bits and little
    /// endian.
    pub(super) fn audit(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
            Self::Aarch64 => 0xc000_00b7,
        }
    }

    /// The column of `syscalls.txt`.
    fn column(self) -> usize {
        match self {
            Self::X86_64 => 1,
            Self::Aarch64 => 2,
        }
    }
}

/// The calls of one architecture.
pub(super) struct Syscalls {
    /// `None`: the table names the call, and the architecture lacks it.
    by_name: BTreeMap<&'static str, Option<u32>>,
}

impl Syscalls {
    /// # Panics
    /// When the table does not parse; a test reads it.
    pub(super) fn of(architecture: Architecture) -> Self {
        let lines = SOURCE.lines().filter(|line| !line.starts_with('#'));
        let by_name = lines.map(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let number = match columns[architecture.column()] {
                "-" => None,
                digits => Some(digits.parse().expect("a number")),
            };
            (columns[0], number)
        });
        Self { by_name: by_name.collect() }
    }

    /// Every call that the architecture has.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.by_name.iter().filter_map(|(name, number)| Some((*name, (*number)?)))
    }

    /// The number of a call; `None` when the architecture lacks it.
    ///
    /// # Panics
    /// When the table does not name the call.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        *self.by_name.get(name).unwrap_or_else(|| panic!("no call {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that a kernel header defines, by name.
    fn defined(header: &str) -> BTreeMap<String, u32> {
        let text = std::fs::read_to_string(header).expect("linux-libc-dev is installed");
        let mut numbers = BTreeMap::new();
        let mut aliases = Vec::new();
        for line in text.lines() {
            let Some(rest) = line.strip_prefix("#define __NR") else { continue };
            let mut words = rest.split_whitespace();
            let (Some(name), Some(value)) = (words.next(), words.next()) else { continue };
            match value.strip_prefix("__NR") {
                Some(of) => aliases.push((name.to_owned(), of.to_owned())),
                None => drop(value.parse().map(|number| numbers.insert(name.to_owned(), number))),
            }
        }
        // Calls whose name depends on the size of a word: `__NR_fcntl` is `__NR3264_fcntl`.
        for (name, of) in aliases {
            if let Some(number) = numbers.get(&of).copied() {
                numbers.insert(name, number);
            }
        }
        let named = numbers.into_iter();
        named.filter_map(|(name, number)| Some((name.strip_prefix('_')?.into(), number))).collect()
    }

    fn compare(architecture: Architecture, header: &str) {
        let defined = defined(header);
        let newest = *defined.values().max().expect("the header has calls");
        for (name, number) in &Syscalls::of(architecture).by_name {
            match (number, defined.get(*name)) {
                // Calls that are newer than the installed headers.
                (Some(number), None) => assert!(*number > newest, "{name} = {number}"),
                (number, header) => assert_eq!(*number, header.copied(), "{name}"),
            }
        }
    }

    #[test]
    fn the_numbers_are_those_of_the_kernels_headers() {
        compare(Architecture::X86_64, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h");
        // arm64 uses the numbers that all newer architectures share.
        compare(Architecture::Aarch64, "/usr/include/asm-generic/unistd.h");
    }
}
