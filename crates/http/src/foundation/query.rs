//! Query strings, parsed as strictly as bodies. Values are bytes.

use crate::foundation::error::ApiError;
use axum::http::Uri;

/// The parameters of a query.
#[derive(Debug, Default)]
pub(crate) struct Query<'a>(Vec<(&'a str, Vec<u8>)>);

impl<'a> Query<'a> {
    /// Parses a query. Refuses parameters that are not in `known` or occur twice.
    pub(crate) fn of(uri: &'a Uri, known: &[&str]) -> Result<Self, ApiError> {
        Self::with_lists(uri, known, &[])
    }

    /// Like [`Query::of`], but parameters in `lists` may occur repeatedly.
    pub(crate) fn with_lists(
        uri: &'a Uri,
        known: &[&str],
        lists: &[&str],
    ) -> Result<Self, ApiError> {
        let mut all: Vec<(&str, Vec<u8>)> = Vec::new();
        for pair in uri.query().unwrap_or("").split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !known.contains(&name) && !lists.contains(&name) {
                return Err(ApiError::bad_request(format!(
                    "?{name}: this call does not know it; it knows: {}",
                    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
                )));
            }
            if !lists.contains(&name) && all.iter().any(|(other, _)| *other == name) {
                return Err(ApiError::bad_request(format!("?{name}: stands twice")));
            }
            let value = decode_query_value(value)
                .ok_or_else(|| bad_parameter(name, "has a malformed % escape"))?;
            all.push((name, value));
        }
        Ok(Self(all))
    }

    /// A value as bytes.
    pub(crate) fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(other, _)| *other == name).map(|(_, value)| value.as_slice())
    }

    /// A value that must be UTF-8.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, ApiError> {
        self.bytes(name)
            .map(|value| {
                std::str::from_utf8(value).map_err(|_| bad_parameter(name, "must be UTF-8"))
            })
            .transpose()
    }

    /// All values of a repeatable parameter, which must be UTF-8.
    pub(crate) fn list(&self, name: &str) -> Result<Vec<String>, ApiError> {
        let own = self.0.iter().filter(|(other, _)| *other == name);
        own.map(|(_, value)| {
            String::from_utf8(value.clone()).map_err(|_| bad_parameter(name, "must be UTF-8"))
        })
        .collect()
    }

    /// A boolean: `1`, `true` or an empty value, `0` or `false`.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.text(name)? {
            None | Some("0" | "false") => Ok(false),
            Some("" | "1" | "true") => Ok(true),
            Some(_) => Err(bad_parameter(name, "must be 1 or 0")),
        }
    }
}

/// 400 about one parameter.
pub(crate) fn bad_parameter(name: &str, reason: &str) -> ApiError {
    ApiError::bad_request(format!("?{name}: {reason}"))
}

pub(crate) fn decode_query_value(text: &str) -> Option<Vec<u8>> {
    decode_path(&text.replace('+', " "))
}

/// Decodes a part of a path, in which a plus sign stands for itself.
pub(crate) fn decode_path(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let high = bytes.next()?;
                let low = bytes.next()?;
                let digit = |b: u8| char::from(b).to_digit(16);
                u8::try_from(digit(high)? * 16 + digit(low)?).ok()?
            }
            other => other,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_bytes_and_names_are_known() {
        let uri = Uri::from_static("/f?path=%2Fa%20b%ff%00&watch=1");
        let query = Query::of(&uri, &["path", "watch"]).unwrap();
        assert_eq!(query.bytes("path"), Some(&b"/a b\xff\0"[..]));
        assert!(query.flag("watch").unwrap());
        assert!(query.text("path").is_err());
        for bad in ["/f?nope=1", "/f?path=1&path=2", "/f?path=%", "/f?path=%4", "/f?path=%zz"] {
            assert!(Query::of(&bad.parse().unwrap(), &["path"]).is_err(), "{bad}");
        }
    }
}
