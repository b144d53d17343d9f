//! The connection of a file call's worker: blocking, and its own.

use super::disk::Failure;
use bytes::{Bytes, BytesMut};
use isolet_wire::frame::{self, DATA_BYTES_MAX, Data, Frame, SERVER_FRAME_BYTES_MAX};
use isolet_wire::request::{AgentRequest, File as Call};
use isolet_wire::response::AgentResponse;
use rustix::net::SendFlags;
use std::io::Read;
use std::os::fd::OwnedFd;

/// The server has gone or does not speak our words: nothing more can be told.
pub(super) struct Broken;

/// Why a call did not succeed.
pub(super) enum Ended {
    Failure(Failure),
    Broken,
}

impl From<Broken> for Ended {
    fn from(_: Broken) -> Self {
        Self::Broken
    }
}

impl<T: Into<Failure>> From<T> for Ended {
    fn from(failure: T) -> Self {
        Self::Failure(failure.into())
    }
}

pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    pub(super) input: BytesMut,
}

impl Connection {
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

    /// Whether the server is still there: for work that says nothing for long.
    pub(super) fn check_alive(&self) -> Result<(), Broken> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut socket = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut socket, Some(&now)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(()),
            _ => Err(Broken),
        }
    }

    /// The next bytes that the server sends; `None` at their end.
    pub(super) fn next_bytes(&mut self) -> Result<Option<Bytes>, Ended> {
        match self.frame()? {
            Frame::Data(body) => Ok(Some(Data::parse(body).map_err(|_| Broken)?.bytes)),
            Frame::Message(body) => match frame::decode(&body) {
                Ok(AgentRequest::File(Call::End)) => Ok(None),
                _ => Err(Failure::order("a write goes on with data or its end").into()),
            },
        }
    }

    /// Sends all that there is to read, as data from position `at` on.
    pub(super) fn send_all(&mut self, from: &mut impl Read, mut at: u64) -> Result<(), Ended> {
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
