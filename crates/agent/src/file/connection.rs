//! The blocking connection of a file operation's worker.

use super::disk::Failure;
use bytes::{Bytes, BytesMut};
use isolet_wire::frame::{self, DATA_BYTES_MAX, DataFrame, Frame, SERVER_FRAME_BYTES_MAX};
use isolet_wire::request::{AgentRequest, FileRequest};
use isolet_wire::response::AgentResponse;
use rustix::net::SendFlags;
use std::io::Read;
use std::os::fd::OwnedFd;

/// The server has disconnected or violates the protocol, so no answer is possible.
pub(super) struct Broken;

/// Why an operation did not succeed.
pub(super) enum ConnectionEnded {
    Failure(Failure),
    Broken,
}

impl From<Broken> for ConnectionEnded {
    fn from(_: Broken) -> Self {
        Self::Broken
    }
}

impl<T: Into<Failure>> From<T> for ConnectionEnded {
    fn from(failure: T) -> Self {
        Self::Failure(failure.into())
    }
}

pub(super) struct FileConnection {
    pub(super) socket: OwnedFd,
    pub(super) input: BytesMut,
}

impl FileConnection {
    pub(super) fn send(&self, mut bytes: &[u8]) -> Result<(), Broken> {
        while !bytes.is_empty() {
            match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(Broken),
            }
        }
        Ok(())
    }

    pub(super) fn send_message(&self, message: &AgentResponse) -> Result<(), Broken> {
        let mut out = Vec::new();
        frame::put(&mut out, message);
        self.send(&out)
    }

    pub(super) fn frame(&mut self) -> Result<Frame, Broken> {
        let mut buffer = vec![0; DATA_BYTES_MAX];
        loop {
            if let Some(frame) =
                frame::next(&mut self.input, SERVER_FRAME_BYTES_MAX).map_err(|_| Broken)?
            {
                return Ok(frame);
            }
            match rustix::io::read(&self.socket, &mut buffer) {
                Ok(0) => return Err(Broken),
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(Broken),
            }
        }
    }

    /// Checks that the server is still connected, for operations that send nothing for a long time.
    pub(super) fn check_alive(&self) -> Result<(), Broken> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut socket = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut socket, Some(&now)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(()),
            _ => Err(Broken),
        }
    }

    /// The next bytes from the server; `None` at their end.
    pub(super) fn next_bytes(&mut self) -> Result<Option<Bytes>, ConnectionEnded> {
        match self.frame()? {
            Frame::Data(body) => Ok(Some(DataFrame::parse(body).map_err(|_| Broken)?.bytes)),
            Frame::Message(body) => match frame::decode(&body) {
                Ok(AgentRequest::File(FileRequest::End)) => Ok(None),
                _ => Err(Failure::request("a write goes on with data or its end").into()),
            },
        }
    }

    /// Sends everything from a reader as data frames from offset `at` on.
    pub(super) fn send_all(
        &mut self,
        from: &mut impl Read,
        mut at: u64,
    ) -> Result<(), ConnectionEnded> {
        let mut bytes = vec![0; DATA_BYTES_MAX];
        let mut head = Vec::new();
        loop {
            let count = from.read(&mut bytes)?;
            if count == 0 {
                return Ok(());
            }
            head.clear();
            frame::put_data_head(&mut head, 0, at, "", count);
            self.send(&head)?;
            self.send(&bytes[..count])?;
            at += count as u64;
        }
    }
}
