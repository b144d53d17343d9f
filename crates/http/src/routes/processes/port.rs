//! Waits until a port in the sandbox accepts connections or answers a GET.

use crate::foundation::error::ApiError;
use crate::foundation::json::{self, not_null};
use isolet_sandbox::{Error, ProcessId, ProcessInfo, Sandbox};
use isolet_wire::response::RefusalReason;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout_at};
use utoipa::ToSchema;

/// The pause between two attempts.
const AGAIN: Duration = Duration::from_millis(50);
/// How long one response may take.
const ANSWER: Duration = Duration::from_secs(5);
/// The longest path, in bytes.
const PATH_BYTES_MAX: usize = 1024;
/// How much of a response is read, which includes its first line.
const LINE_BYTES_MAX: usize = 1024;

/// A port on the loopback interface of the sandbox, and the answer that is expected.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = PortCondition)]
pub(crate) struct PortWish {
    /// The port, 1 to 65535.
    #[serde(deserialize_with = "json::port")]
    #[schema(required = true)]
    port: u16,
    /// Send a `GET` for this path instead of only connecting.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    path: Option<String>,
    /// The expected status. Defaults to any from 200 to 399. Needs `path`.
    #[serde(deserialize_with = "json::not_null_status")]
    #[schema(nullable = false)]
    status: Option<u16>,
}

impl PortWish {
    pub(super) fn check(&self) -> Result<(), ApiError> {
        if self.port == 0 {
            return Err(ApiError::bad_field("port.port", "1 to 65535"));
        }
        let Some(path) = &self.path else {
            return match self.status {
                None => Ok(()),
                Some(_) => Err(ApiError::bad_field(
                    "port.status",
                    "is the status of an HTTP response: pass path too",
                )),
            };
        };
        let plain = path.len() <= PATH_BYTES_MAX && path.bytes().all(|b| b.is_ascii_graphic());
        if !path.starts_with('/') || !plain {
            let reason = "must begin with / and have at most 1024 visible ASCII characters";
            return Err(ApiError::bad_field("port.path", reason));
        }
        if self.status.is_some_and(|status| !(100..600).contains(&status)) {
            return Err(ApiError::bad_field("port.status", "100 to 599"));
        }
        Ok(())
    }

    /// Whether the port accepts a connection now, and answers as expected.
    async fn answers(&self, sandbox: &Sandbox, end: Instant) -> Result<bool, ApiError> {
        let end = end.min(Instant::now() + ANSWER);
        let Ok(link) = timeout_at(end, sandbox.dial(self.port)).await else { return Ok(false) };
        let mut link = match link {
            Ok(link) => link,
            Err(Error::Refused {
                reason:
                    RefusalReason::NotListening
                    | RefusalReason::NoAnswer
                    | RefusalReason::ResourcesExhausted,
                ..
            }) => {
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        let Some(path) = &self.path else { return Ok(true) };
        let asked = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost:{}\r\naccept: */*\r\nconnection: close\r\n\r\n",
            self.port
        );
        let answer = async {
            link.write_all(asked.as_bytes()).await.ok()?;
            let mut line = Vec::new();
            while line.len() < LINE_BYTES_MAX && !line.contains(&b'\n') {
                if link.read_buf(&mut line).await.ok()? == 0 {
                    break;
                }
            }
            status(&line)
        };
        let answered = timeout_at(end, answer).await.ok().flatten();
        Ok(answered.is_some_and(|answered| match self.status {
            Some(status) => answered == status,
            None => (200..400).contains(&answered),
        }))
    }
}

/// Parses the status in the first line of a response.
fn status(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.1 ").or_else(|| line.strip_prefix(b"HTTP/1.0 "))?;
    std::str::from_utf8(rest.get(..3)?).ok()?.parse().ok()
}

/// Whether the process can no longer accept connections. What it started may outlive it.
fn over(info: &ProcessInfo) -> bool {
    info.lost || info.process.end.is_some() && !info.process.remains
}

/// Waits, and returns `met`, `timeout` or `ended` with the process at that time.
pub(super) async fn wait(
    sandbox: &Sandbox,
    id: &ProcessId,
    wish: &PortWish,
    end: Instant,
) -> Result<(&'static str, ProcessInfo), ApiError> {
    loop {
        let info = sandbox.process(id).await?;
        if wish.answers(sandbox, end).await? {
            return Ok(("met", info));
        }
        if over(&info) {
            return Ok(("ended", info));
        }
        let next = Instant::now() + AGAIN;
        if next >= end {
            let info = sandbox.process(id).await?;
            return Ok((if over(&info) { "ended" } else { "timeout" }, info));
        }
        sleep_until(next).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: J8.
    #[test]
    fn only_a_port_with_a_path_that_stays_on_its_line_is_asked() {
        let wish = |port, path: Option<&str>, status| {
            PortWish { port, path: path.map(Into::into), status }.check().is_ok()
        };
        assert!(wish(1, None, None) && wish(65535, Some("/a?b=%20"), Some(204)));
        for bad in ["", "a", "http://x/", "/a b", "/a\r\nx: y", "/ä", &"/".repeat(1025)] {
            assert!(!wish(80, Some(bad), None), "{bad}");
        }
        assert!(
            !wish(0, None, None) && !wish(80, None, Some(200)) && !wish(80, Some("/"), Some(99))
        );
    }

    #[test]
    fn a_status_is_only_parsed_from_a_status_line() {
        assert_eq!(status(b"HTTP/1.1 204 No Content\r\n"), Some(204));
        for bad in [&b"HTTP/1.1 20"[..], b"SSH-2.0-x", b"HTTP/2 200 ", b"HTTP/1.1 2\xff0 ", b""] {
            assert_eq!(status(bad), None);
        }
    }
}
