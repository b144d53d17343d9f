//! `--filter` of `ls` and `rm`: which sandboxes are meant.

use anyhow::Result;
use serde_json::Value;

/// What a filter compares.
#[derive(Clone, Debug, PartialEq)]
enum Property {
    /// A field of the record.
    Field(&'static str),
    /// An entry of the metadata.
    Metadata(String),
}

/// The fields of the record that filters compare.
const FIELDS: [&str; 5] = ["id", "state", "image", "network", "class"];

/// One `--filter NAME=VALUE`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Filter {
    property: Property,
    /// The value, in which `*` stands for any text.
    pattern: String,
}

/// Parses `NAME=VALUE`.
pub(crate) fn filter(text: &str) -> Result<Filter, String> {
    let names = "must be id=, state=, image=, network=, class= or metadata.NAME=, and a value, \
                 in which * stands for any text";
    let (name, pattern) = text.split_once('=').ok_or(names)?;
    let property = match name.strip_prefix("metadata.") {
        Some(entry) if !entry.is_empty() => Property::Metadata(entry.to_owned()),
        _ => {
            let field = FIELDS.into_iter().find(|known| *known == name);
            Property::Field(field.ok_or(names)?)
        }
    };
    Ok(Filter { property, pattern: pattern.to_owned() })
}

/// Whether a sandbox passes: of each name at least one filter, as with `docker ps`.
pub(crate) fn passes(filters: &[Filter], sandbox: &Value) -> bool {
    filters.iter().all(|one| {
        let mut same = filters.iter().filter(|other| other.property == one.property);
        same.any(|other| other.matches(sandbox))
    })
}

impl Filter {
    fn matches(&self, sandbox: &Value) -> bool {
        let value = match &self.property {
            Property::Field(name) => &sandbox[*name],
            Property::Metadata(name) => &sandbox["metadata"][name],
        };
        match value {
            Value::Null => false,
            Value::String(text) => matches(&self.pattern, text),
            other => matches(&self.pattern, &other.to_string()),
        }
    }
}

/// Whether a text matches a pattern with `*`.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn passed(filters: &[&str], sandbox: &Value) -> bool {
        let filters: Vec<Filter> = filters.iter().map(|text| filter(text).unwrap()).collect();
        passes(&filters, sandbox)
    }

    #[test]
    fn one_of_each_name_must_match() {
        let one = json!({"id": "build-7", "state": "running", "metadata": {"team": "a", "n": 3}});
        for filters in [
            &[][..],
            &["state=running"],
            &["state=paused", "state=running"],
            &["id=build-*", "state=running"],
            &["metadata.team=a", "metadata.n=3"],
        ] {
            assert!(passed(filters, &one), "{filters:?}");
        }
        for filters in
            [&["state=paused"][..], &["state=running", "id=x*"], &["metadata.no=a"], &["image=*"]]
        {
            assert!(!passed(filters, &one), "{filters:?}");
        }
        for wrong in ["state", "colour=red", "metadata.=a", "=a", ""] {
            assert!(filter(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text) in
            [("a", "a"), ("*", ""), ("a*c", "abc"), ("*b*", "abc"), ("a**", "a"), ("a*a", "aa")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("a", "ab"), ("a*a", "a"), ("*b", "abc"), ("a*b*c", "acb"), ("", "a")]
        {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
