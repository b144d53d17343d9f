//! One command by HTTP: sent, heard to its end, told as one JSON answer or as it happens.

use crate::{
    auth::cancellation::{Ending, Until},
    foundation::error::Failure,
    stream::captured_output::Output,
};
use bytes::Bytes;
use isolet_sandbox::{
    Denials, Denied, ExecLink, Heard, LinkError, Sandbox, SessionId, ShellLink, Start,
};
use isolet_wire::{
    ask::{Ask, Run},
    frame::{DATA_BYTES_MAX, Data},
    tell::{Exit, Tell},
};
use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// What a stopping server leaves a command that is nearly done.
const GRACE: Duration = Duration::from_secs(1);

/// What came of a command.
#[derive(Debug)]
pub(crate) enum Event {
    /// It has begun.
    Started,
    /// Bytes that it wrote.
    Output {
        /// 1 or 2.
        stream: u8,
        /// Where they stand in the shell's or program's stream.
        offset: u64,
        /// At most 64 KiB.
        bytes: Bytes,
    },
    /// Bytes that are no longer held.
    Gap {
        /// 1 or 2.
        stream: u8,
        /// First missing byte.
        from: u64,
        /// First byte that is there again.
        to: u64,
    },
    /// It has ended; nothing follows. With what was refused to its sandbox meanwhile.
    Exit(Exit, Denied),
}

enum Link {
    Shell(ShellLink),
    Exec(ExecLink),
}

impl Link {
    fn push(&mut self, ask: &Ask) -> Result<(), LinkError> {
        match self {
            Self::Shell(link) => link.push(ask),
            Self::Exec(link) => link.push(ask),
        }
    }

    /// Its session has ended, and took the shell along.
    fn session_ended(&self) -> bool {
        matches!(self, Self::Shell(link) if link.session_ended())
    }
}

/// A command that was sent.
pub(crate) struct Command {
    /// Until it is parked.
    link: Option<Link>,
    /// Its id on the link; empty for a program.
    id: String,
    /// What waits to be its standard input.
    stdin: VecDeque<Ask>,
    /// Whether it ends with its client.
    bound: bool,
    denials: Denials,
    /// It has ended, and what was refused meanwhile is waited for.
    ended: Option<Exit>,
}

/// Ids of commands by HTTP: several links share one owner, and an earlier server's commands may
/// still run.
fn fresh_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static SERVER: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(isolet_sandbox::ids::random);
    format!("{}-{}", *SERVER, NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Command {
    /// Runs in a session's shell. When this is dropped it is cancelled if `bound`, and else goes on.
    pub(crate) async fn in_session(
        sandbox: &Sandbox,
        session: &SessionId,
        mut run: Run,
        stdin: Option<Vec<u8>>,
        bound: bool,
    ) -> Result<Self, Failure> {
        let mut link = sandbox.commands(session).await?;
        let denials = sandbox.denials();
        run.id = fresh_id();
        run.stdin = stdin.is_some();
        let id = run.id.clone();
        link.send(&Ask::Run(run)).await?;
        let stdin = input(&id, stdin);
        Ok(Self { link: Some(Link::Shell(link)), id, stdin, bound, denials, ended: None })
    }

    /// Starts a program. It is killed when this is dropped.
    pub(crate) async fn alone(
        sandbox: &Sandbox,
        mut start: Start,
        stdin: Option<Vec<u8>>,
    ) -> Result<Self, Failure> {
        start.stdin = stdin.is_some();
        let denials = sandbox.denials();
        let link = sandbox.exec(start).await?;
        let (id, stdin) = (String::new(), input("", stdin));
        Ok(Self { link: Some(Link::Exec(link)), id, stdin, bound: true, denials, ended: None })
    }

    /// What comes next. Cancel-safe. After an `Exit` nothing may be asked.
    pub(crate) async fn next(&mut self) -> Result<Event, Failure> {
        loop {
            if self.ended.is_some() {
                let denied = self.denials.told().await;
                let exit = self.ended.take().ok_or(LinkError::Ended)?;
                return Ok(Event::Exit(exit, denied));
            }
            let heard = self.hear().await.map_err(|error| self.why(error))?;
            if let Some(event) = self.sort(heard)? {
                return Ok(event);
            }
        }
    }

    /// A link that breaks when its session ends has ended because of that.
    fn why(&self, error: LinkError) -> LinkError {
        match error {
            LinkError::Destroyed(_) => error,
            _ if self.orphaned() => LinkError::SessionEnded,
            _ => error,
        }
    }

    /// Its session has ended: however its shell tells of the end, that is why.
    fn orphaned(&self) -> bool {
        self.link.as_ref().is_some_and(Link::session_ended)
    }

    /// What has already come.
    pub(crate) fn ready(&mut self) -> Result<Option<Event>, Failure> {
        while self.ended.is_none() {
            let heard = match &mut self.link {
                Some(Link::Shell(link)) => link.try_next(),
                Some(Link::Exec(link)) => link.try_next(),
                None => Ok(None),
            };
            let Some(heard) = heard.map_err(|error| self.why(error))? else { return Ok(None) };
            if let Some(event) = self.sort(heard)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    async fn hear(&mut self) -> Result<Heard, LinkError> {
        let link = self.link.as_mut().ok_or(LinkError::Ended)?;
        // Pushed, not sent: a program that writes before it reads must be heard meanwhile. All of
        // it is bounded by the body that it came in.
        while let Some(ask) = self.stdin.pop_front() {
            link.push(&ask)?;
        }
        match link {
            Link::Shell(link) => link.next().await,
            Link::Exec(link) => link.next().await,
        }
    }

    fn sort(&mut self, heard: Heard) -> Result<Option<Event>, Failure> {
        match heard {
            Heard::Data(body) => {
                let data = Data::parse(body).map_err(LinkError::from)?;
                let ours = data.id == self.id;
                let Data { stream, offset, bytes, .. } = data;
                Ok(ours.then_some(Event::Output { stream, offset, bytes }))
            }
            Heard::Tell(Tell::Started { id }) if id == self.id => {
                self.denials.begin();
                Ok(Some(Event::Started))
            }
            Heard::Tell(Tell::Exit(exit)) if exit.id == self.id => {
                if self.orphaned() {
                    return Err(LinkError::SessionEnded.into());
                }
                if !self.denials.there() {
                    return Ok(Some(Event::Exit(exit, Denied::default())));
                }
                self.ended = Some(exit);
                Ok(None)
            }
            Heard::Tell(Tell::Gap { stream, from, to }) => {
                Ok(Some(Event::Gap { stream, from, to }))
            }
            Heard::Tell(Tell::Refused { id, why, message })
                if id.as_ref().is_none_or(|id| *id == self.id) =>
            {
                if self.orphaned() {
                    return Err(LinkError::SessionEnded.into());
                }
                Err(Failure::refused(why, message))
            }
            // Also that a session's shell has ended: what was sent opens the next, or is refused.
            Heard::Tell(_) => Ok(None),
        }
    }

    /// Hears it to its end, gathers what it says, and gives the link back.
    pub(crate) async fn finish(
        mut self,
        mut output: Output,
        mut until: Until,
    ) -> Result<(Exit, Output, Denied), Failure> {
        let ended = async move {
            let ending = until.ended().await;
            if ending == Ending::Stopping {
                tokio::time::sleep(GRACE).await;
            }
            ending
        };
        tokio::pin!(ended);
        loop {
            // The end first: a command that never stops writing must not put it off.
            let event = tokio::select! {
                biased;
                ending = &mut ended => return Err(ending.into()),
                event = self.next() => event?,
            };
            match event {
                Event::Started => {}
                Event::Output { stream, bytes, .. } => output.take(stream, &bytes),
                Event::Gap { stream, from, to } => output.miss(stream, to.saturating_sub(from)),
                Event::Exit(exit, denied) => {
                    self.park();
                    return Ok((exit, output, denied));
                }
            }
        }
    }

    /// After its exit: the link may serve the next command.
    pub(crate) fn park(mut self) {
        match self.link.take() {
            None => {}
            Some(Link::Exec(link)) => link.park(),
            Some(Link::Shell(mut link)) => {
                // What has come since its exit is others' or says that the shell has ended.
                while let Ok(heard) = link.try_next() {
                    match heard {
                        None => return link.park(),
                        Some(Heard::Tell(Tell::Closed(_))) => return,
                        Some(_) => {}
                    }
                }
            }
        }
    }
}

impl Drop for Command {
    /// The client has gone before the end: what is bound to it ends with it.
    fn drop(&mut self) {
        if let Some(link) = self.link.as_mut().filter(|_| self.bound) {
            let _ = link.push(&Ask::Cancel { id: std::mem::take(&mut self.id) });
        }
    }
}

fn input(id: &str, stdin: Option<Vec<u8>>) -> VecDeque<Ask> {
    let Some(bytes) = stdin else { return VecDeque::new() };
    let part = |data: &[u8], eof| Ask::Stdin { id: id.to_owned(), data: data.to_vec(), eof };
    let mut all: VecDeque<Ask> =
        bytes.chunks(DATA_BYTES_MAX).map(|data| part(data, false)).collect();
    all.push_back(part(&[], true));
    all
}
