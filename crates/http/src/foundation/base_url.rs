//! The address under which a client reached this server.

use crate::foundation::extensions::Scheme;
use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;
use std::convert::Infallible;

/// Scheme, host and port as the client named them.
#[derive(Debug)]
pub(crate) struct BaseUrl {
    scheme: Scheme,
    /// Host and port, as the client sent them.
    authority: String,
}

impl BaseUrl {
    /// The URL without a path, with the host replaced by `name` if there is one.
    pub(crate) fn origin(&self, name: Option<&str>) -> String {
        let scheme = self.scheme.name();
        let authority = &self.authority;
        // The port follows the last colon that is not within an IPv6 address.
        let port = authority.rsplit_once(':').filter(|(_, port)| !port.contains(']'));
        match (name, port) {
            (None, _) => format!("{scheme}://{authority}"),
            (Some(name), Some((_, port))) => format!("{scheme}://{name}:{port}"),
            (Some(name), None) => format!("{scheme}://{name}"),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for BaseUrl {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let authority = host.unwrap_or_default().to_owned();
        Ok(Self { scheme: Scheme::of(&parts.extensions), authority })
    }
}
