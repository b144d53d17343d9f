//! How tools reach the public API.

use bytes::Bytes;
use http::{Extensions, Request, Response};
use std::future::Future;
use std::pin::Pin;

/// Resolves to the API's response, whatever its status, or to the reason why there is none.
pub type ApiFuture<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, String>> + Send + 'a>>;

/// A connection to the public API.
pub trait Api: Send + Sync + 'static {
    /// Calls the API with the rights of `caller`: the extensions of the client's HTTP request, or empty
    /// extensions over standard input and output, which has only one caller. Dropping the future cancels
    /// the call, because its client has disconnected.
    fn call<'a>(&'a self, request: Request<Bytes>, caller: Extensions) -> ApiFuture<'a>;
}
