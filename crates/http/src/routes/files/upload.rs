//! Streams the body of a request to a file.

use crate::foundation::error::ApiError;
use crate::foundation::json::reject_content_encoding;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use http_body_util::BodyExt;
use isolet_sandbox::Sandbox;
use isolet_sandbox::files::Writer;
use isolet_wire::request::{ExpectedFile, WriteOptions};
use isolet_wire::response::FileStat;
use std::time::Duration;
use tokio::time::timeout;

/// How long an upload may stall.
const STILL: Duration = Duration::from_secs(60);

/// Writes the body of a request to a file, or to none but the expected one. Returns the file's metadata and whether it is new.
pub(crate) async fn save(
    sandbox: &Sandbox,
    path: &[u8],
    how: WriteOptions,
    expected: Option<ExpectedFile>,
    request: Request,
) -> Result<(FileStat, bool), ApiError> {
    reject_content_encoding(request.headers())?;
    if request.headers().contains_key(header::CONTENT_RANGE) {
        return Err(ApiError::bad_field(
            "Content-Range",
            "a file is written whole, or with ?append=1",
        ));
    }
    let mut writer = match expected {
        Some(expected) => sandbox.file_save_if(path, how, expected).await?,
        None => sandbox.file_save(path, how).await?,
    };
    receive(request.into_body(), &mut writer).await?;
    Ok(writer.save().await?)
}

/// Streams an upload to a writer. When the upload breaks off, the writer is dropped and changes
/// nothing.
pub(crate) async fn receive(mut body: Body, writer: &mut Writer) -> Result<(), ApiError> {
    loop {
        let frame = timeout(STILL, body.frame()).await.map_err(|_| {
            let status = StatusCode::REQUEST_TIMEOUT;
            ApiError::new(
                status,
                "deadline_exceeded",
                "no data of the upload arrived for 60 s",
                "send it again",
            )
        })?;
        match frame {
            None => return Ok(()),
            Some(Err(_)) => return Err(ApiError::bad_request("the upload ended early")),
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    writer.write(&bytes).await?;
                }
            }
        }
    }
}
