//! The WebSocket handshake, done by hand so that the server sets every limit.

use crate::connection::client_stream::ClientStream;
use crate::connection::upgraded::upgraded;
use crate::foundation::error::ApiError;
use crate::limits::limiter::SocketPermit;
use axum::body::Body;
use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header,
};
use hyper::upgrade::OnUpgrade;
use std::time::Duration;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// The read buffer. An idle socket keeps this much.
const READ_BYTES: usize = 8 * 1024;
/// The size of the write buffer, in bytes.
const WRITE_BYTES: usize = 128 * 1024;
/// How long the client may take to upgrade.
const UPGRADE_WAIT: Duration = Duration::from_secs(10);

/// A WebSocket on the bare connection, without the layers of HTTP.
pub(crate) type UpgradedSocket = WebSocketStream<ClientStream>;

/// Checks that a request is a handshake, and returns the `Sec-WebSocket-Accept` of the response.
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
            "this route requires a WebSocket upgrade",
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

/// The response that switches to WebSocket.
pub(crate) fn switch(accept: HeaderValue) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    response
}

/// Spawns a task that runs the socket once the response has been sent, and then releases the
/// request's permit. `longest` is as in `socket`.
pub(crate) fn hand_over<F>(
    request: &mut Request<Body>,
    longest: usize,
    run: impl FnOnce(UpgradedSocket) -> F + Send + 'static,
) where
    F: Future<Output = ()> + Send,
{
    let upgrade = hyper::upgrade::on(&mut *request);
    let permit = request.extensions_mut().remove::<SocketPermit>();
    tokio::spawn(async move {
        if let Some(socket) = socket(upgrade, longest).await {
            run(socket).await;
        }
        drop(permit);
    });
}

/// The socket, once the response has been sent; `None` when the client has disconnected. A message
/// longer than `longest` bytes closes it with 1009.
async fn socket(upgrade: OnUpgrade, longest: usize) -> Option<UpgradedSocket> {
    let (stream, read) = timeout(UPGRADE_WAIT, upgraded(upgrade)).await.ok()??;
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(WRITE_BYTES)
        .max_message_size(Some(longest))
        .max_frame_size(Some(longest));
    let read = read.to_vec();
    Some(WebSocketStream::from_partially_read(stream, read, Role::Server, Some(config)).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_handshake_is_upgraded() {
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
