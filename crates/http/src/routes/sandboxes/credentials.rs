//! Injected credentials in requests and responses. They are parsed by hand, because a parser's
//! error would repeat the wrong value, and any part of it may be the secret.

use crate::foundation::error::ApiError;
use crate::foundation::json::unique_json;
use isolet_sandbox::{CredentialRemoval, CredentialSpec, SandboxInfo};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::fmt;
use utoipa::ToSchema;

/// The most entries of one list; a sandbox has fewer.
const LIST_MAX: usize = 256;

/// A credential that the server injects into requests of the sandbox. At least one of `header` and
/// `placeholder` is needed.
#[derive(ToSchema)]
#[schema(as = Credential)]
pub(crate) struct CredentialBody {
    /// The host, or `*.` and a host. Without `:PORT` it applies to TLS connections only, on every
    /// port.
    host: String,
    /// The header to set, or with `placeholder` the only header in which the placeholder is
    /// replaced.
    #[schema(nullable = false)]
    header: Option<String>,
    /// The text that the server replaces in the headers of requests; 4 to 256 characters.
    #[schema(nullable = false)]
    placeholder: Option<String>,
    /// The secret value, at most 8 KiB. The server never returns it.
    #[schema(write_only)]
    value: String,
}

/// Selects the credentials of a host, or only those with this header or placeholder.
#[derive(ToSchema)]
pub(crate) struct CredentialSelector {
    /// The host as it was given.
    host: String,
    /// Selects only credentials with this header.
    #[schema(nullable = false)]
    header: Option<String>,
    /// Selects only credentials with this placeholder.
    #[schema(nullable = false)]
    placeholder: Option<String>,
}

/// A credential, without its value.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CredentialInfo)]
pub(crate) struct CredentialView {
    /// The host, with its port if one was given.
    host: String,
    /// The header, in lower case.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    header: Option<String>,
    /// The text that is replaced by the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    placeholder: Option<String>,
    /// Whether the network rules allow the host. A credential does not allow it.
    allowed: bool,
}

/// The credentials of a sandbox, without their values.
pub(crate) fn views(info: &SandboxInfo) -> Vec<CredentialView> {
    let view = |credential: &isolet_sandbox::InjectedCredential| CredentialView {
        host: credential.host.clone(),
        header: credential.header.clone(),
        placeholder: credential.placeholder.clone(),
        allowed: info.network.allows(credential),
    };
    info.credentials.iter().map(view).collect()
}

/// The raw JSON of a list of credentials.
#[derive(Clone, Default)]
pub(crate) struct CredentialList(Option<Value>);

impl fmt::Debug for CredentialList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialList(…)")
    }
}

/// Only for the default value in the OpenAPI document: never writes the credentials.
impl Serialize for CredentialList {
    fn serialize<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        writer.collect_seq(std::iter::empty::<()>())
    }
}

impl<'de> Deserialize<'de> for CredentialList {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        unique_json(reader).map(|value| Self(Some(value)))
    }
}

impl CredentialBody {
    fn parse(at: &str, object: Map<String, Value>) -> Result<Self, ApiError> {
        let mut fields = Fields::of(at, object, &["host", "header", "placeholder", "value"])?;
        let host = fields.required("host")?;
        let value = fields.required("value")?;
        let header = fields.text("header")?;
        let placeholder = fields.text("placeholder")?;
        Ok(Self { host, header, placeholder, value })
    }
}

impl CredentialSelector {
    fn parse(at: &str, object: Map<String, Value>) -> Result<Self, ApiError> {
        let mut fields = Fields::of(at, object, &["host", "header", "placeholder"])?;
        let host = fields.required("host")?;
        let header = fields.text("header")?;
        let placeholder = fields.text("placeholder")?;
        Ok(Self { host, header, placeholder })
    }
}

impl CredentialList {
    fn list(self, field: &str) -> Result<Vec<Map<String, Value>>, ApiError> {
        let list = match self.0 {
            None => return Ok(Vec::new()),
            Some(Value::Array(list)) if list.len() <= LIST_MAX => list,
            Some(_) => {
                return Err(ApiError::bad_field(field, "must be an array of at most 256 objects"));
            }
        };
        let object = |(index, one)| match one {
            Value::Object(one) => Ok(one),
            _ => Err(ApiError::bad_field(&format!("{field}[{index}]"), "must be an object")),
        };
        list.into_iter().enumerate().map(object).collect()
    }

    /// Parses credentials to add.
    pub(crate) fn parse_added(self, field: &str) -> Result<Vec<CredentialSpec>, ApiError> {
        let all = self.list(field)?.into_iter().enumerate();
        all.map(|(index, one)| {
            let at = format!("{field}[{index}]");
            let CredentialBody { host, header, placeholder, value } =
                CredentialBody::parse(&at, one)?;
            CredentialSpec::new(&host, header, placeholder, value)
                .map_err(|error| named(&at, error))
        })
        .collect()
    }

    /// Parses the selectors of credentials to remove.
    pub(crate) fn parse_removed(self, field: &str) -> Result<Vec<CredentialRemoval>, ApiError> {
        let all = self.list(field)?.into_iter().enumerate();
        all.map(|(index, one)| {
            let at = format!("{field}[{index}]");
            let CredentialSelector { host, header, placeholder } =
                CredentialSelector::parse(&at, one)?;
            CredentialRemoval::new(&host, header, placeholder).map_err(|error| named(&at, error))
        })
        .collect()
    }
}

/// Adds the position in the list to an error.
pub(crate) fn named(at: &str, error: isolet_sandbox::Error) -> ApiError {
    match error {
        isolet_sandbox::Error::BadField { field, reason } => {
            let part = field.strip_prefix("credentials").unwrap_or_default();
            ApiError::bad_field(&format!("{at}{part}"), &reason)
        }
        other => other.into(),
    }
}

/// The fields of one entry.
struct Fields<'a> {
    at: &'a str,
    all: Map<String, Value>,
}

impl<'a> Fields<'a> {
    fn of(at: &'a str, all: Map<String, Value>, known: &[&str]) -> Result<Self, ApiError> {
        // The name of an unknown field may itself be a secret.
        if all.keys().any(|name| !known.contains(&name.as_str())) {
            return Err(ApiError::bad_field(
                at,
                &format!("has a field other than {}", known.join(", ")),
            ));
        }
        Ok(Self { at, all })
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.all.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(ApiError::bad_field(&format!("{}.{name}", self.at), "must be a string")),
        }
    }

    fn required(&mut self, name: &str) -> Result<String, ApiError> {
        let text = self.text(name)?;
        text.ok_or_else(|| ApiError::bad_field(&format!("{}.{name}", self.at), "is required"))
    }
}

/// Parses Isorun's format: values by `HOST` (for its `Authorization` header) or `HOST:HEADER`.
pub(crate) fn from_host_map(given: CredentialList) -> Result<Vec<CredentialSpec>, ApiError> {
    const FIELD: &str = "credentials";
    let all = match given.0 {
        None => return Ok(Vec::new()),
        Some(Value::Object(all)) if all.len() <= LIST_MAX => all,
        Some(_) => return Err(ApiError::bad_field(FIELD, "must be an object")),
    };
    all.into_iter()
        .map(|(name, value)| {
            let Value::String(value) = value else {
                return Err(ApiError::bad_field(FIELD, "each value must be a string"));
            };
            let (host, header) = match name.rsplit_once(':') {
                Some((host, header)) if !header.bytes().all(|byte| byte.is_ascii_digit()) => {
                    (host, header)
                }
                _ => (name.as_str(), "authorization"),
            };
            if !host.contains('.') {
                let reason = "each name must be HOST or HOST:HEADER: values do not come inside, \
                              they are put into requests to that host";
                return Err(ApiError::bad_field(FIELD, reason));
            }
            CredentialSpec::new(host, Some(header.to_owned()), None, value)
                .map_err(|error| named(FIELD, error))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foundation::json::parse;

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct CredentialsBody {
        credentials: CredentialList,
    }

    fn refused(text: &str) -> String {
        let read = parse::<CredentialsBody>(text.as_bytes());
        let failure = match read {
            Ok(body) => body.credentials.parse_added("credentials").expect_err("must be refused"),
            Err(failure) => failure,
        };
        format!("{failure:?} {}", failure.message)
    }

    /// Promises: Q20.
    #[test]
    fn wrong_credentials_are_refused_by_their_field_and_nothing_of_them_is_repeated() {
        for (credentials, field) in [
            (r#""hunter2""#, "credentials"),
            (r#"{"a":"hunter2"}"#, "credentials"),
            ("null", "credentials"),
            (r#"["hunter2"]"#, "credentials[0]"),
            (r#"[{"host":"a.b","header":"x","value":1234567}]"#, "credentials[0].value"),
            (r#"[{"host":"a.b","header":"x"}]"#, "credentials[0].value"),
            (r#"[{"host":"hunter2 x","header":"x","value":"v"}]"#, "credentials[0].host"),
            (r#"[{"host":"a.b","hunter2":"x","value":"v"}]"#, "credentials[0]"),
            (r#"[{"host":"a.b","value":"hunter2"}]"#, "credentials[0]"),
            (r#"[{"host":"a.b","header":"x","value":"hunter2\n"}]"#, "credentials[0].value"),
            (r#"[{"host":"a.b","header":"hunter2 x","value":"v"}]"#, "credentials[0].header"),
            (
                r#"[{"host":"a.b","placeholder":"hunter2 x","value":"v"}]"#,
                "credentials[0].placeholder",
            ),
            (r#"[{"host":"a.b","value":"hunter2","value":"hunter2"}]"#, "credentials"),
            (r#"[{"host":"a.b","value":"hunter2\ud800"}]"#, "credentials"),
        ] {
            let said = refused(&format!("{{\"credentials\":{credentials}}}"));
            assert!(said.contains(field), "{credentials}: {said}");
            assert!(!said.contains("hunter2") && !said.contains("1234567"), "{said}");
        }
    }

    /// Promises: Q23.
    #[test]
    fn credentials_of_isorun_are_headers_of_hosts() {
        let read = |text: &str| {
            let body = parse::<CredentialsBody>(format!("{{\"credentials\":{text}}}").as_bytes());
            from_host_map(body.expect("reads").credentials)
        };
        let all = read(r#"{"api.example":"Bearer a","b.example:8443":"c","d.example:X-Key":"e"}"#);
        let all: Vec<_> = all
            .expect("each is a host")
            .into_iter()
            .map(|one| (one.credential.host, one.credential.header.unwrap_or_default()))
            .collect();
        let pair = |host: &str, header: &str| (host.to_owned(), header.to_owned());
        let expected = [
            pair("api.example", "authorization"),
            pair("b.example:8443", "authorization"),
            pair("d.example", "x-key"),
        ];
        assert_eq!(all, expected);
        for wrong in [r#"{"API_KEY":"hunter2"}"#, r#"["hunter2"]"#, r#"{"a.b":["hunter2"]}"#] {
            let failure = read(wrong).expect_err(wrong);
            assert!(!failure.message.contains("hunter2"), "{}", failure.message);
        }
    }
}
