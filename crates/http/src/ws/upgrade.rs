//! WebSocket: the upgrade by hand, so that every limit is ours.

use crate::{
    connection::smuggling_guard::SmugglingGuard, foundation::error::ApiError,
    limits::limiter::SocketPermit,
};
use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header},
};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

/// What is read at once. An idle socket keeps this much.
const READ_BYTES: usize = 8 * 1024;
/// What is written at once.
const WRITE_BYTES: usize = 128 * 1024;
/// How long the client may take to be upgraded.
const UPGRADE_WAIT: Duration = Duration::from_secs(10);

/// A WebSocket on its bare connection.
pub(crate) type Socket = WebSocketStream<TcpStream>;

/// Checks that a request is an upgrade, and gives what the answer must carry.
pub(crate) fn handshake(method: &Method, headers: &HeaderMap) -> Result<HeaderValue, ApiError> {
    let has = |name: HeaderName, wanted: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .any(|value| value.split(',').any(|word| word.trim().eq_ignore_ascii_case(wanted)))
    };
    if method != Method::GET
        || !has(header::CONNECTION, "upgrade")
        || !has(header::UPGRADE, "websocket")
    {
        return Err(ApiError::new(
            StatusCode::UPGRADE_REQUIRED,
            "upgrade_required",
            "this address speaks WebSocket",
            "open it with a WebSocket client",
        ));
    }
    if !has(header::SEC_WEBSOCKET_VERSION, "13") {
        return Err(ApiError::bad_field("Sec-WebSocket-Version", "must be 13"));
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
    // 16 bytes in base64.
    let key = key
        .filter(|key| key.len() == 24)
        .ok_or_else(|| ApiError::bad_field("Sec-WebSocket-Key", "must be 16 bytes in base64"))?;
    HeaderValue::try_from(derive_accept_key(key))
        .map_err(|_| ApiError::bad_request("Sec-WebSocket-Key"))
}

/// The answer that turns the connection into a WebSocket.
pub(crate) fn switch(accept: HeaderValue) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    response
}

/// Has a task of its own run a request's socket, once the answer is sent; the request's permit is
/// given back behind it. Messages as `upgraded`.
pub(crate) fn hand_over<F>(
    request: &mut Request<Body>,
    longest: usize,
    run: impl FnOnce(Socket) -> F + Send + 'static,
) where
    F: Future<Output = ()> + Send,
{
    let upgrade = hyper::upgrade::on(&mut *request);
    let permit = request.extensions_mut().remove::<SocketPermit>();
    tokio::spawn(async move {
        if let Some(socket) = upgraded(upgrade, longest).await {
            run(socket).await;
        }
        drop(permit);
    });
}

/// The socket, once the answer is sent; `None` when the client has gone meanwhile. A message longer
/// than `longest` bytes closes it with 1009.
async fn upgraded(upgrade: hyper::upgrade::OnUpgrade, longest: usize) -> Option<Socket> {
    let upgraded: Upgraded = timeout(UPGRADE_WAIT, upgrade).await.ok()?.ok()?;
    // The bare connection: nothing is boxed on the way of a byte.
    let parts = upgraded.downcast::<TokioIo<SmugglingGuard>>().ok()?;
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(WRITE_BYTES)
        .max_message_size(Some(longest))
        .max_frame_size(Some(longest));
    let stream = parts.io.into_inner().into_inner();
    let read = parts.read_buf.to_vec();
    Some(WebSocketStream::from_partially_read(stream, read, Role::Server, Some(config)).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_upgrade_is_upgraded() {
        let mut headers = HeaderMap::new();
        let said = |method: Method, headers: &HeaderMap| {
            handshake(&method, headers).map_err(|failure| failure.status().as_u16())
        };
        assert_eq!(said(Method::GET, &headers), Err(426));
        headers.insert(header::CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("WebSocket"));
        assert_eq!(said(Method::GET, &headers), Err(400));
        headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        assert_eq!(said(Method::GET, &headers), Err(400));
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        headers.insert(header::SEC_WEBSOCKET_KEY, key);
        // The example of RFC 6455.
        assert_eq!(said(Method::GET, &headers).unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(said(Method::POST, &headers), Err(426));
    }
}
