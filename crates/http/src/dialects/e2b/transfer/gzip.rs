//! Uploads that the client has compressed.

use crate::foundation::error::ApiError;
use axum::body::Body;
use axum::http::StatusCode;
use flate2::write::GzDecoder;
use http_body_util::BodyExt;
use isolet_sandbox::files::Writer;
use std::io::Write;
use std::time::Duration;
use tokio::time::timeout;

/// How long an upload may stall.
const STILL: Duration = Duration::from_secs(60);
/// How much is decompressed at once, in bytes. It becomes at most about a thousand times as much.
const PIECE_BYTES: usize = 4096;

/// Decompresses an upload into a file.
pub(super) async fn receive(mut body: Body, writer: &mut Writer) -> Result<(), ApiError> {
    let mut decoder = GzDecoder::new(Vec::new());
    loop {
        let frame = timeout(STILL, body.frame()).await.map_err(|_| stalled())?;
        match frame {
            None => break,
            Some(Err(_)) => return Err(ApiError::bad_request("the upload ended early")),
            Some(Ok(frame)) => {
                let Ok(bytes) = frame.into_data() else { continue };
                for piece in bytes.chunks(PIECE_BYTES) {
                    decoder.write_all(piece).map_err(|_| malformed())?;
                    writer.write(decoder.get_ref()).await?;
                    decoder.get_mut().clear();
                }
            }
        }
    }
    let rest = decoder.finish().map_err(|_| malformed())?;
    writer.write(&rest).await?;
    Ok(())
}

fn malformed() -> ApiError {
    ApiError::bad_request("the body is not what Content-Encoding: gzip says")
}

fn stalled() -> ApiError {
    let message = "no data of the upload arrived for 60 s";
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "deadline_exceeded", message, "send it again")
}
