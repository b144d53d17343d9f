//! Frames: `u32 length | u8 kind | body` in network byte order, where the length counts kind and
//! body.
//!
//! The body of a *message* is one postcard-encoded value. The body of a *data* frame has the layout
//! of the binary frames of the shell WebSocket, so that the server can forward it without a copy:
//! `u8 stream | u64 offset | u16 id length | id | bytes`.

use bytes::{Buf, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum size of a frame from an agent: 64 KiB of data, its header and an id. Longer lists are
/// split into several messages.
pub const AGENT_FRAME_BYTES_MAX: usize = 128 * 1024;
/// Maximum size of a frame from a server: a command text of 1 MiB, its environment and its id.
pub const SERVER_FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum amount of output in one data frame, in bytes.
pub const DATA_BYTES_MAX: usize = 64 * 1024;
/// Maximum length of a command's id, in bytes.
pub const ID_BYTES_MAX: usize = 256;

const KIND_MESSAGE: u8 = 0;
const KIND_DATA: u8 = 1;
const HEAD: usize = 4;

/// One complete frame of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// An encoded `AgentRequest` or `AgentResponse`; see [`decode`].
    Message(Bytes),
    /// A data frame's body; see [`DataFrame::parse`].
    Data(Bytes),
}

/// A violation of the frame format. The connection must be closed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// The announced length is zero or above the limit.
    #[error("frame of {length} bytes, at most {max} allowed")]
    Length {
        /// The length that the head announces, in bytes.
        length: usize,
        /// The maximum for this direction.
        max: usize,
    },
    /// The kind is unknown to this version.
    #[error("frame of unknown kind {0}")]
    Kind(u8),
    /// The body does not decode, or bytes follow the value.
    #[error("frame body is malformed")]
    Body,
}

/// Removes the next complete frame from `buf`; `None` means that more bytes are needed.
///
/// # Errors
/// [`FrameError::Length`] before any allocation, and [`FrameError::Kind`] for an unknown kind.
pub fn next(buf: &mut BytesMut, max: usize) -> Result<Option<Frame>, FrameError> {
    if buf.len() < HEAD {
        return Ok(None);
    }
    let length = u32::from_be_bytes([buf[0], buf[1], buf[2], buf[3]]) as usize;
    if length == 0 || length > max {
        return Err(FrameError::Length { length, max });
    }
    if buf.len() < HEAD + length {
        buf.reserve(HEAD + length - buf.len());
        return Ok(None);
    }
    buf.advance(HEAD);
    let mut body = buf.split_to(length).freeze();
    match body.get_u8() {
        KIND_MESSAGE => Ok(Some(Frame::Message(body))),
        KIND_DATA => Ok(Some(Frame::Data(body))),
        kind => Err(FrameError::Kind(kind)),
    }
}

/// Decodes a message body.
///
/// # Errors
/// [`FrameError::Body`] if the body is not exactly one `T`.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        _ => Err(FrameError::Body),
    }
}

/// Appends one message frame to `out`.
///
/// # Panics
/// Never for the types of this crate: they hold nothing that postcard cannot encode.
pub fn put<T: Serialize>(out: &mut Vec<u8>, message: &T) {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, KIND_MESSAGE]);
    let taken = std::mem::take(out);
    *out = postcard::to_extend(message, taken).expect("messages encode");
    let length = u32::try_from(out.len() - start - HEAD).expect("messages are below 4 GiB");
    out[start..start + HEAD].copy_from_slice(&length.to_be_bytes());
}

/// Appends the head of a data frame; the caller appends exactly `count` bytes after it.
///
/// # Panics
/// When `id` is longer than [`ID_BYTES_MAX`] or `count` than [`DATA_BYTES_MAX`].
pub fn put_data_head(out: &mut Vec<u8>, stream: u8, offset: u64, id: &str, count: usize) {
    assert!(id.len() <= ID_BYTES_MAX && count <= DATA_BYTES_MAX, "data frame out of bounds");
    let length = 1 + 1 + 8 + 2 + id.len() + count;
    out.extend_from_slice(&(length as u32).to_be_bytes());
    out.push(KIND_DATA);
    out.push(stream);
    out.extend_from_slice(&offset.to_be_bytes());
    out.extend_from_slice(&(id.len() as u16).to_be_bytes());
    out.extend_from_slice(id.as_bytes());
}

/// A decoded data frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFrame {
    /// [`crate::response::STDOUT`] or [`crate::response::STDERR`]; 0 for the contents of a file.
    pub stream: u8,
    /// Position of the first byte, counted from the beginning of the stream.
    pub offset: u64,
    /// The command that wrote the bytes; empty for background jobs.
    pub id: String,
    /// The output as the program wrote it.
    pub bytes: Bytes,
}

/// What a data frame carries, without its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataSize {
    /// See [`DataFrame::stream`].
    pub stream: u8,
    /// Number of bytes of output.
    pub bytes: usize,
}

impl DataSize {
    /// Reads the head of a data frame's body; `None` if it is truncated.
    #[must_use]
    pub fn of(body: &[u8]) -> Option<Self> {
        let length = usize::from(u16::from_be_bytes([*body.get(9)?, *body.get(10)?]));
        let bytes = body.len().checked_sub(11 + length)?;
        Some(Self { stream: body[0], bytes })
    }
}

impl DataFrame {
    /// Decodes the body of a data frame.
    ///
    /// # Errors
    /// [`FrameError::Body`] if the body is truncated or the id is not UTF-8.
    pub fn parse(mut body: Bytes) -> Result<Self, FrameError> {
        if body.len() < 11 {
            return Err(FrameError::Body);
        }
        let stream = body.get_u8();
        let offset = body.get_u64();
        let length = usize::from(body.get_u16());
        if length > ID_BYTES_MAX || body.len() < length {
            return Err(FrameError::Body);
        }
        let id = body.split_to(length);
        let id = std::str::from_utf8(&id).map_err(|_| FrameError::Body)?.to_owned();
        Ok(Self { stream, offset, id, bytes: body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_data_frame_is_that_of_its_decoded_bytes() {
        for (id, bytes) in [("", &b""[..]), ("", b"output"), ("c/7", b"x")] {
            let mut out = Vec::new();
            put_data_head(&mut out, 2, 9, id, bytes.len());
            out.extend_from_slice(bytes);
            let frame = next(&mut BytesMut::from(&out[..]), AGENT_FRAME_BYTES_MAX);
            let Ok(Some(Frame::Data(body))) = frame else { panic!("{frame:?}") };
            let size = DataSize::of(&body);
            assert_eq!(size, Some(DataSize { stream: 2, bytes: bytes.len() }));
            assert_eq!(DataFrame::parse(body).map(|frame| frame.bytes.len()), Ok(bytes.len()));
        }
        assert_eq!(DataSize::of(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(DataSize::of(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5]), None);
    }
}
