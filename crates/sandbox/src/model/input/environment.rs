//! Environments of shells and programs, and changes of them.

use crate::model::input::{BadInput, no_nul};
use std::collections::BTreeMap;

/// Environment variables that the kernel can pass to a program: no name is empty or contains `=`,
/// nothing contains NUL, and the size is at most [`Environment::BYTES_MAX`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Maximum size in bytes: names and values, and 2 bytes for each variable.
    pub const BYTES_MAX: usize = 128 * 1024;

    /// Parses an environment from a client.
    ///
    /// # Errors
    /// [`BadInput`] of the field `env`.
    pub fn parse(all: BTreeMap<String, String>) -> Result<Self, BadInput> {
        check(all.iter().map(|(name, value)| Variable { name, value }))?;
        Ok(Self(all))
    }

    /// The variables for the record and the wire.
    #[must_use]
    pub fn into_inner(self) -> BTreeMap<String, String> {
        self.0
    }
}

/// Environment variables to set, or with `None` to unset. The rules of [`Environment`] apply; an
/// unset variable counts as an empty one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvironmentChange(BTreeMap<String, Option<String>>);

impl EnvironmentChange {
    /// Parses a change from a client.
    ///
    /// # Errors
    /// [`BadInput`] of the field `env`.
    pub fn parse(all: BTreeMap<String, Option<String>>) -> Result<Self, BadInput> {
        check(all.iter().map(|(name, change)| {
            let value = change.as_deref().unwrap_or_default();
            Variable { name, value }
        }))?;
        Ok(Self(all))
    }

    /// Sets and unsets the variables in `env`, which may then exceed the size of an
    /// [`Environment`].
    pub(crate) fn apply(self, env: &mut BTreeMap<String, String>) {
        for (name, value) in self.0 {
            match value {
                Some(value) => env.insert(name, value),
                None => env.remove(&name),
            };
        }
    }

    /// Sets a variable that the client neither sets nor unsets. The server's own variables do not
    /// count towards the size.
    pub fn set_default(&mut self, name: &str, value: String) {
        self.0.entry(name.to_owned()).or_insert(Some(value));
    }

    /// The change for the wire.
    #[must_use]
    pub fn into_inner(self) -> BTreeMap<String, Option<String>> {
        self.0
    }
}

struct Variable<'a> {
    name: &'a str,
    value: &'a str,
}

impl Variable<'_> {
    fn bytes(&self) -> usize {
        self.name.len() + self.value.len() + 2
    }
}

fn check<'a>(all: impl Iterator<Item = Variable<'a>>) -> Result<(), BadInput> {
    let mut bytes = 0;
    for variable in all {
        if variable.name.is_empty() || variable.name.contains(['=', '\0']) {
            return Err(BadInput::new("env", "a name must not be empty or contain = or NUL"));
        }
        no_nul("env", variable.value)?;
        bytes += variable.bytes();
    }
    if bytes > Environment::BYTES_MAX {
        return Err(BadInput::new("env", "must be at most 128 KiB of names and values"));
    }
    Ok(())
}

/// Checks the size of an environment that was merged from several parsed ones. Each of them is
/// within the limit, but their sum may exceed it.
pub(crate) fn check_merged_size(env: &BTreeMap<String, String>) -> Result<(), BadInput> {
    let bytes: usize = env.iter().map(|(name, value)| Variable { name, value }.bytes()).sum();
    if bytes > Environment::BYTES_MAX {
        let reason = format!("{bytes} bytes, at most {}", Environment::BYTES_MAX);
        return Err(BadInput::new("env", reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What both types answer, which must be the same.
    fn parse(name: &str, value: &str) -> Result<(), String> {
        let env = Environment::parse([(name.into(), value.into())].into());
        let change = EnvironmentChange::parse([(name.into(), Some(value.into()))].into());
        let env = env.map(drop).map_err(|error| error.to_string());
        assert_eq!(change.map(drop).map_err(|error| error.to_string()), env);
        env
    }

    #[test]
    fn names_and_values_are_those_that_the_kernel_can_pass() {
        let name = Err("env: a name must not be empty or contain = or NUL".to_owned());
        assert_eq!(parse("A", "b=c\n"), Ok(()));
        assert_eq!(parse("A", ""), Ok(()));
        assert_eq!(parse("", "x"), name);
        assert_eq!(parse("A=B", "x"), name);
        assert_eq!(parse("A\0", "x"), name);
        assert_eq!(parse("A", "\0"), Err("env: must not contain a NUL character".into()));
        let unset = |name: &str| EnvironmentChange::parse([(name.into(), None)].into());
        assert!(unset("A").is_ok() && unset("A=").is_err());
    }

    #[test]
    fn the_size_is_limited() {
        let longest = Environment::BYTES_MAX - "A".len() - 2;
        let large = "env: must be at most 128 KiB of names and values".to_owned();
        assert_eq!(parse("A", &"x".repeat(longest)), Ok(()));
        assert_eq!(parse("A", &"x".repeat(longest + 1)), Err(large));
    }

    #[test]
    fn the_size_of_a_merged_environment_is_limited() {
        let env = Environment::parse([("A".into(), "x".repeat(100_000))].into());
        let mut env = env.unwrap().into_inner();
        let change = EnvironmentChange::parse([("B".into(), Some("x".repeat(100_000)))].into());
        change.unwrap().apply(&mut env);
        let error = check_merged_size(&env).unwrap_err();
        assert_eq!(error.to_string(), "env: 200006 bytes, at most 131072");
        EnvironmentChange::parse([("A".into(), None)].into()).unwrap().apply(&mut env);
        assert_eq!(check_merged_size(&env), Ok(()));
        assert_eq!(env.keys().collect::<Vec<_>>(), ["B"]);
    }
}
