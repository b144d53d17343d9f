//! Credentials on a command line: their names, and the sources of their values. A value never stands
//! on the command line, because all processes of the machine can read command lines.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use std::io::Read as _;

/// The longest value, in bytes.
const VALUE_BYTES_MAX: u64 = 64 * 1024;

/// The name of a credential, and the source of its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::client) struct Credential {
    name: Name,
    source: ValueSource,
}

/// The name of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::client) struct Name {
    host: String,
    header: Option<String>,
    placeholder: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ValueSource {
    File(String),
    Input,
    Variable(String),
}

/// Parses `HOST:HEADER=SOURCE` or `HOST:{PLACEHOLDER}=SOURCE`. Errors do not repeat the text, which may hold a secret.
pub(in crate::client) fn credential(text: &str) -> Result<Credential, String> {
    let wrong = || "must be HOST:HEADER=SOURCE or HOST:{PLACEHOLDER}=SOURCE".to_owned();
    let (name, source) = match text.split_once("}=") {
        Some((name, source)) => (format!("{name}}}"), source),
        None => text.split_once('=').map(|(name, it)| (name.to_owned(), it)).ok_or_else(wrong)?,
    };
    let name = named(&name)?;
    if name.header.is_none() && name.placeholder.is_none() {
        return Err(wrong());
    }
    let source = match source.split_at_checked(1) {
        _ if source == "-" => ValueSource::Input,
        Some(("@", path)) if !path.is_empty() => ValueSource::File(path.to_owned()),
        _ => match source.strip_prefix("env:") {
            Some(name) if !name.is_empty() => ValueSource::Variable(name.to_owned()),
            _ => {
                return Err("SOURCE is @FILE, - or env:NAME; the value itself is not taken from \
                            the command line"
                    .to_owned());
            }
        },
    };
    Ok(Credential { name, source })
}

/// Parses `HOST`, `HOST:HEADER` or `HOST:{PLACEHOLDER}`. The host may have a port.
pub(in crate::client) fn named(text: &str) -> Result<Name, String> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (host, header, placeholder) = match text.split_once(":{") {
        Some((host, word)) => {
            let word = word.strip_suffix('}').ok_or("a placeholder must end with }")?;
            (host, None, Some(word.to_owned()))
        }
        None => match text.rsplit_once(':') {
            Some((host, header)) if !digits(header) => (host, Some(header.to_owned()), None),
            _ => (text, None, None),
        },
    };
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    Ok(Name { host: host.to_owned(), header, placeholder })
}

impl Name {
    fn fields(&self) -> Map<String, Value> {
        let mut body = Map::new();
        body.insert("host".into(), json!(self.host));
        for (name, value) in [("header", &self.header), ("placeholder", &self.placeholder)] {
            if let Some(value) = value {
                body.insert(name.into(), json!(value));
            }
        }
        body
    }
}

/// The credentials for a request, with their values.
pub(in crate::client) fn credentials(all: &[Credential]) -> Result<Vec<Value>> {
    if all.iter().filter(|one| one.source == ValueSource::Input).count() > 1 {
        bail!(
            "only one credential can come from standard input; use @FILE or env:NAME for the others"
        );
    }
    let with = |one: &Credential| {
        let mut body = one.name.fields();
        body.insert("value".into(), json!(one.source.value()?));
        Ok(body.into())
    };
    all.iter().map(with).collect()
}

/// The names of credentials for a request.
pub(in crate::client) fn names(all: &[Name]) -> Vec<Value> {
    all.iter().map(|one| one.fields().into()).collect()
}

impl ValueSource {
    /// Reads the value, without the newline at its end.
    fn value(&self) -> Result<String> {
        let text = match self {
            Self::Input => read(std::io::stdin().lock()).context("standard input")?,
            Self::File(path) => {
                let file = std::fs::File::open(path).with_context(|| path.clone())?;
                read(file).with_context(|| path.clone())?
            }
            Self::Variable(name) => {
                let value = std::env::var(name).ok();
                value.with_context(|| format!("the variable {name} is not set"))?
            }
        };
        let text = text.strip_suffix('\n').unwrap_or(&text);
        Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
    }
}

fn read(from: impl std::io::Read) -> Result<String> {
    let mut text = String::new();
    from.take(VALUE_BYTES_MAX).read_to_string(&mut text).context("the value is not UTF-8 text")?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: Q23.
    #[test]
    fn a_value_is_never_on_the_command_line() {
        for wrong in [
            "api.example:Authorization=Bearer hunter2",
            "api.example:X-Key=hunter2",
            "api.example:{KEY}=hunter2",
            "api.example:X-Key=env:",
            "api.example:X-Key=@",
            "api.example=@hunter2",
            ":X-Key=-",
            "hunter2",
        ] {
            let said = credential(wrong).expect_err(wrong);
            assert!(!said.contains("hunter2"), "{said}");
        }
    }

    /// Promises: Q23.
    #[test]
    fn a_value_comes_from_a_file_or_a_variable_without_its_line_end() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "Bearer of-file\n").expect("written");
        let path = file.path().display();
        let read = |text: String| credentials(&[credential(&text).expect("a credential")]);
        let parsed = read(format!("api.example:8443:Authorization=@{path}")).expect("it is there");
        let expected = json!({"host": "api.example:8443", "header": "Authorization", "value": "Bearer of-file"});
        assert_eq!(parsed, [expected]);
        let parsed = read(format!("*.example:{{A_KEY}}=@{path}")).expect("it is there");
        let expected =
            json!({"host": "*.example", "placeholder": "A_KEY", "value": "Bearer of-file"});
        assert_eq!(parsed, [expected]);
        let home = std::env::var("PATH").expect("every test has one");
        let parsed = read("a.example:X=env:PATH".into()).expect("it is set");
        assert_eq!(parsed[0]["value"], home);
        assert!(read("a.example:X=env:NEVER_WAS_SET_HERE".into()).is_err());
        let input = credential("a.example:X=-").expect("a credential");
        assert!(credentials(&[input.clone(), input]).is_err(), "there is one standard input");
        let all = [named("a.example").expect("a name"), named("b.example:80:X").expect("a name")];
        let expected =
            [json!({"host": "a.example"}), json!({"host": "b.example:80", "header": "X"})];
        assert_eq!(names(&all), expected);
    }
}
