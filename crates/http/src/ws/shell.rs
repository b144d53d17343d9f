//! One client of a shell: a socket on one side, a link to the agent on the other, one task.
//!
//! No channel and no second task stands between the two: a command costs two wake-ups. While the
//! client does not read, nothing is read from the link, and what it says is still taken.

use crate::{
    auth::cancellation::Until,
    foundation::{
        denied,
        error::Failure,
        utf8_stream::{Piece, Texts},
    },
    stream::captured_output::lost_field,
    ws::{
        client_frame,
        connection::{CLOSE_WAIT, End, Event, Go, Line, clock},
        shell_frames,
        upgrade::Socket,
    },
};
use isolet_sandbox::{
    Denials, Heard, LinkError, Sandbox, ShellLink,
    sandbox::{Attach, ShellName},
};
use isolet_wire::{
    ask::Ask,
    frame::{DATA_BYTES_MAX, Data},
    tell::{Closed, Tell, Why},
};
use std::{collections::HashMap, future::poll_fn, ops::ControlFlow};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Bytes, Message, protocol::frame::coding::CloseCode};
use tracing::debug;

/// The longest message: a command of 1 MiB, escaped, and its envelope.
pub(crate) const MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Output taken from the link before it is sent on. One frame may stand above it.
const BATCH_BYTES: usize = 128 * 1024;
/// Standard input taken from the client before the agent took it.
const INPUT_BYTES_MAX: usize = 256 * 1024;
/// Commands of which is noted when they began: a shell runs one after the other.
const BEGUN_MAX: usize = 1024;

/// Who is at the other end, and what was agreed.
pub(crate) struct Client {
    /// Where the shell is.
    pub(crate) sandbox: Sandbox,
    /// The connection to it.
    pub(crate) link: ShellLink,
    /// Whose the command ids are.
    pub(crate) owner: String,
    /// The shell ends with this client.
    pub(crate) private: bool,
    /// It came back: commands of its earlier connection may run.
    pub(crate) resumed: bool,
    /// Output goes as binary frames.
    pub(crate) binary: bool,
    /// It is told when a command begins.
    pub(crate) starts: bool,
    /// What its first frame tells: the shell's name for a return, and where the shell stands.
    pub(crate) opened: Option<(String, String)>,
    /// For commands that name none, in ms; 0 never.
    pub(crate) timeout_ms: u64,
}

struct Talk {
    line: Line,
    client: Client,
    texts: Texts,
    /// The shell has ended, and was told so; a session's next command opens another.
    over: bool,
    /// Commands that take standard input: their cancel must not stand behind it.
    fed: Vec<String>,
    /// What was refused since each command has begun that has not ended.
    denials: HashMap<String, Denials>,
    /// The same since this client came.
    since: Denials,
}

/// Serves a client until either side ends.
pub(crate) async fn run(socket: Socket, client: Client, until: Until) {
    let (line, texts) = (Line::new(socket), Texts::default());
    let (since, denials) = (client.sandbox.denials(), HashMap::new());
    let mut talk = Talk { line, client, texts, over: false, fed: Vec::new(), denials, since };
    let end = talk.talk(until).await;
    talk.leave(end).await;
}

impl Talk {
    async fn talk(&mut self, mut until: Until) -> End {
        if let Some((shell, at)) = self.client.opened.take()
            && let ControlFlow::Break(end) = self.write(shell_frames::opened(&shell, &at))
        {
            return end;
        }
        let mut clock = clock();
        // Lives as long as the loop: nothing is registered anew for each message.
        let ended = async move { until.ended().await };
        tokio::pin!(ended);
        loop {
            let (line, link) = (&mut self.line, &mut self.client.link);
            let (dirty, full) = (line.dirty(), link.waiting() > INPUT_BYTES_MAX);
            let go = tokio::select! {
                biased;
                // First: under a steady load the others are always ready.
                ending = &mut ended => ControlFlow::Break(ending.into()),
                event = poll_fn(|cx| line.poll(cx, full)) => self.event(event).await,
                heard = link.next(), if !dirty => self.heard(heard).await,
                // A client whose input waits for its command is not read.
                _ = clock.tick() => self.line.tick(full),
            };
            if let ControlFlow::Break(end) = go {
                return end;
            }
        }
    }

    async fn event(&mut self, event: Event) -> Go {
        match self.line.hear(event)? {
            Some(Message::Text(text)) => match client_frame::parse(&text) {
                Ok(said) => self.said(said).await,
                Err((id, failure)) => self.refuse(id.as_deref(), &failure),
            },
            Some(_) => self.refuse(None, &Failure::bad("a client's frames are JSON text")),
            None => ControlFlow::Continue(()),
        }
    }

    async fn said(&mut self, said: client_frame::Said) -> Go {
        match said {
            client_frame::Said::Run { mut run, timeout_ms, stdin } => {
                run.timeout_ms = timeout_ms.unwrap_or(self.client.timeout_ms);
                let id = run.id.clone();
                if run.stdin && !self.fed.contains(&id) {
                    self.fed.push(id.clone());
                }
                self.push(&Ask::Run(*run))?;
                match stdin {
                    Some(data) => self.feed(&id, &data, true),
                    None => ControlFlow::Continue(()),
                }
            }
            client_frame::Said::Stdin { id, .. }
                if !self.client.resumed && !self.fed.contains(&id) =>
            {
                let message = format!("no command {id} of this client takes standard input");
                self.refuse(Some(&id), &Failure::refused(Why::BadAsk, message))
            }
            client_frame::Said::Stdin { id, data, eof } => self.feed(&id, &data, eof),
            client_frame::Said::Signal { id, signal } => {
                let fed = self.fed.contains(&id);
                self.urge(Ask::Signal { id, signal }, fed).await
            }
            client_frame::Said::Cancel { id } => {
                let fed = self.fed.contains(&id);
                self.urge(Ask::Cancel { id }, fed).await
            }
        }
    }

    fn feed(&mut self, id: &str, data: &[u8], eof: bool) -> Go {
        let part = |data: &[u8], eof| Ask::Stdin { id: id.to_owned(), data: data.to_vec(), eof };
        let mut parts = data.chunks(DATA_BYTES_MAX).peekable();
        if parts.peek().is_none() {
            return self.push(&part(&[], eof));
        }
        while let Some(data) = parts.next() {
            self.push(&part(data, eof && parts.peek().is_none()))?;
        }
        ControlFlow::Continue(())
    }

    /// The agent takes what a connection says in order, and stops at standard input that nobody
    /// reads: what must not wait for that goes by a connection of its own.
    async fn urge(&mut self, ask: Ask, aside: bool) -> Go {
        if !aside {
            return self.push(&ask);
        }
        let shell = self.name();
        let owner = self.client.owner.clone();
        let attach = Attach { shell, owner, watch: false, since: None };
        if let Ok(mut link) = self.client.sandbox.shell(attach).await {
            let _ = link.send(&ask).await;
        }
        ControlFlow::Continue(())
    }

    fn name(&self) -> ShellName {
        let id = self.client.link.shell_id();
        if !self.client.private
            && let Ok(session) = isolet_sandbox::SessionId::parse(id)
        {
            return ShellName::Session(session);
        }
        ShellName::Resume(id.to_owned())
    }

    fn push(&mut self, ask: &Ask) -> Go {
        match self.client.link.push(ask) {
            Ok(()) => ControlFlow::Continue(()),
            // The link's own end says why.
            Err(error) => {
                debug!(%error, "the agent does not take what a client said");
                ControlFlow::Continue(())
            }
        }
    }

    async fn heard(&mut self, heard: Result<Heard, LinkError>) -> Go {
        let (mut heard, mut bytes) = (heard.map(Some), 0);
        loop {
            match heard {
                Ok(None) => return ControlFlow::Continue(()),
                Ok(Some(heard)) => {
                    if matches!(heard, Heard::Tell(Tell::Exit(_))) {
                        self.since.settle().await;
                    }
                    self.tell(heard, &mut bytes)?;
                }
                Err(error) => return self.lost(&error).await,
            }
            if bytes >= BATCH_BYTES {
                return ControlFlow::Continue(());
            }
            heard = self.client.link.try_next();
        }
    }

    /// Passes on what the agent said, and counts its bytes.
    fn tell(&mut self, heard: Heard, bytes: &mut usize) -> Go {
        let tell = match heard {
            Heard::Tell(tell) => tell,
            Heard::Data(body) => {
                *bytes += body.len();
                self.over = false;
                return self.data(body);
            }
        };
        match tell {
            Tell::Exit(exit) => {
                self.over = false;
                self.fed.retain(|id| *id != exit.id);
                let rest = self.texts.end(&exit.id);
                self.pieces(&rest)?;
                let denied = self.denials.remove(&exit.id).unwrap_or_else(|| self.since.clone());
                let more = lost_field(&self.client.sandbox) + &denied::fields(&denied.now());
                self.write(shell_frames::exit(&exit, &more))
            }
            Tell::Started { id } => {
                self.begun(id);
                ControlFlow::Continue(())
            }
            Tell::Began { id, command } => {
                let told = self.client.starts.then(|| shell_frames::start(&id, &command));
                self.begun(id);
                told.map_or(ControlFlow::Continue(()), |message| self.write(message))
            }
            Tell::Gap { stream, from, to } => {
                let rest = self.texts.gap(stream);
                self.pieces(&rest)?;
                self.write(shell_frames::gap(stream, from, to))
            }
            Tell::Refused { id, why, message } => {
                if let Some(id) = id.as_ref().filter(|_| why != Why::IdInUse) {
                    self.fed.retain(|fed| fed != id);
                }
                self.refuse(id.as_deref(), &Failure::refused(why, message))
            }
            Tell::Closed(closed) => self.closed(&closed),
            _ => ControlFlow::Continue(()),
        }
    }

    /// From here on what is refused is told with its end.
    fn begun(&mut self, id: String) {
        if self.denials.len() < BEGUN_MAX {
            self.denials.insert(id, self.client.sandbox.denials());
        }
    }

    fn data(&mut self, body: Bytes) -> Go {
        if self.client.binary {
            // The body is laid out as the frame is.
            return self.write(Message::Binary(body));
        }
        let Ok(Data { stream, offset, id, bytes }) = Data::parse(body) else {
            return ControlFlow::Break(End::Close(CloseCode::Error, "the agent sent a bad frame"));
        };
        match self.texts.piece(stream, &id, offset, &bytes) {
            Some(piece) => {
                let message = shell_frames::output(&piece);
                self.write(message)
            }
            None => ControlFlow::Continue(()),
        }
    }

    fn pieces(&mut self, pieces: &[Piece<'_>]) -> Go {
        pieces.iter().try_for_each(|piece| self.write(shell_frames::output(piece)))
    }

    fn closed(&mut self, closed: &Closed) -> Go {
        let rest = self.texts.close();
        self.pieces(&rest)?;
        self.write(shell_frames::closed(closed))?;
        self.fed.clear();
        self.denials.clear();
        self.over = true;
        if self.client.private {
            return ControlFlow::Break(End::Close(CloseCode::Normal, "the shell has ended"));
        }
        ControlFlow::Continue(())
    }

    /// The link is gone: with its sandbox, with its session, or by itself.
    async fn lost(&mut self, error: &LinkError) -> Go {
        if let LinkError::Destroyed(_) = error {
            let rest = self.texts.close();
            self.pieces(&rest)?;
            self.write(shell_frames::ended_with(&Failure::from(error.clone())))?;
            return ControlFlow::Break(End::destroyed());
        }
        if self.client.link.session_ended() {
            let rest = self.texts.close();
            self.pieces(&rest)?;
            self.write(shell_frames::ended_with(&Failure::from(LinkError::SessionEnded)))?;
            let end = End::Close(CloseCode::Away, "session_ended");
            return ControlFlow::Break(end);
        }
        let Ok(why) = timeout(CLOSE_WAIT, self.client.sandbox.ended()).await else {
            debug!(%error, "the link of a client broke");
            return ControlFlow::Break(End::Close(CloseCode::Restart, "come back"));
        };
        if matches!(why, isolet_sandbox::Error::Stopping) {
            return ControlFlow::Break(End::Close(CloseCode::Restart, "come back"));
        }
        let ended = Closed { code: None, signal: None, cause: why.to_string() };
        if !self.over {
            self.closed(&ended)?;
        }
        ControlFlow::Break(End::Close(CloseCode::Away, "the sandbox has ended"))
    }

    fn refuse(&mut self, id: Option<&str>, failure: &Failure) -> Go {
        self.line.answer(shell_frames::error(id, failure))
    }

    fn write(&mut self, message: Message) -> Go {
        self.line.write(message)
    }

    async fn leave(self, end: End) {
        // A private shell that its client dropped waits for it; see the agent's linger.
        if matches!(end, End::Goodbye) && self.client.private {
            let shell = self.name();
            let _ = timeout(CLOSE_WAIT, self.client.sandbox.close(&shell)).await;
        }
        self.line.leave(end).await;
    }
}
