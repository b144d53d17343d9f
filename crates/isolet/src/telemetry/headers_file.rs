//! The file of headers for the receiver of traces, which may contain a key.

use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::path::Path;

/// Reads a file with one `Name: value` in each line. Empty lines and lines with `#` are skipped.
///
/// # Errors
/// When the file cannot be read, or a line is no header. The error does not contain the value.
pub(super) fn read(path: &Path) -> Result<HashMap<String, String>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read otlp_headers_file {}", path.display()))?;
    parse(&text).with_context(|| format!("otlp_headers_file {}", path.display()))
}

fn parse(text: &str) -> Result<HashMap<String, String>> {
    let mut headers = HashMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let number = index + 1;
        let Some((name, value)) = line.split_once(':') else {
            bail!("line {number} is not \"Name: value\"");
        };
        let name = name.trim();
        let value = value.trim();
        let valid = reqwest::header::HeaderName::try_from(name).is_ok()
            && reqwest::header::HeaderValue::try_from(value).is_ok();
        if !valid {
            bail!("line {number} is not a header that HTTP allows");
        }
        headers.insert(name.to_owned(), value.to_owned());
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_header() {
        let headers = parse("# for the collector\n\nAuthorization: Bearer a:b\nx-tenant:ops\n");
        let headers = headers.unwrap();
        assert_eq!(headers["Authorization"], "Bearer a:b");
        assert_eq!(headers["x-tenant"], "ops");
        assert_eq!(headers.len(), 2);
    }

    #[test]
    fn an_error_names_the_line_and_never_the_value() {
        for text in ["ok: 1\nsecret-value", "a b: secret-value", "x: secret-value\u{1}"] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains("line "), "{error}");
            assert!(!error.contains("secret-value"), "{error}");
        }
    }
}
