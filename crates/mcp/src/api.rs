//! How tools reach the public API.

use bytes::Bytes;
use http::{Extensions, Request, Response};
use std::{future::Future, pin::Pin};

/// Resolves to the API's response, whatever its status, or to the reason why there is none.
pub type ApiFuture<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, String>> + Send + 'a>>;

/// A connection to the public API.
pub trait Api: Send + Sync + 'static {
    /// Makes a call for whom `on_behalf` tells, which are the extensions of the client's own HTTP
    /// request; empty where the client came another way, and there is one caller only. A call whose
    /// future is dropped is one whose client has gone.
    fn call<'a>(&'a self, request: Request<Bytes>, on_behalf: Extensions) -> ApiFuture<'a>;
}
