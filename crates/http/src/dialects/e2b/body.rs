//! Bodies of the control plane. Unknown members are ignored, because newer clients send more.

use crate::dialects::e2b::error::E2bError;
use crate::foundation::error::ApiError;
use crate::foundation::json::{read_body, reject_content_encoding};
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// A JSON body of one type, and its bytes. A missing body counts as an empty object.
pub(crate) struct Lenient<T> {
    pub(super) value: T,
    /// The body as it was sent, for idempotency keys.
    pub(super) raw: Bytes,
}

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Lenient<T> {
    type Rejection = E2bError;

    async fn from_request(request: Request, _: &S) -> Result<Self, E2bError> {
        let (parts, body) = request.into_parts();
        reject_content_encoding(&parts.headers)?;
        let raw = read_body(body, parts.extensions.get()).await?;
        let text = if raw.is_empty() { &b"{}"[..] } else { &raw[..] };
        // A derived `Deserialize` would also accept an array of the fields.
        if text.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
            return Err(ApiError::bad_request("malformed body: must be one JSON object").into());
        }
        let value = serde_json::from_slice(text).map_err(|error| {
            let text: String = error.to_string().chars().take(200).collect();
            ApiError::bad_request(format!("malformed body: {text}"))
        })?;
        Ok(Self { value, raw })
    }
}

/// Reads a member whose `null` means the same as its absence.
pub(super) fn null_as_default<'de, D, T>(reader: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(reader)?.unwrap_or_default())
}
