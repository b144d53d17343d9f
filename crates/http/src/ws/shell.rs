//! Serves one client of a shell: one task between its WebSocket and its connection to the agent.
//!
//! Without channels or a second task in between, a command costs two wake-ups. While the client
//! does not read, nothing is read from the agent, and the client's frames are still accepted.

use crate::auth::cancellation::Cancellation;
use crate::foundation::error::ApiError;
use crate::foundation::lost::LostFields;
use crate::foundation::utf8_stream::{TextChunk, Utf8Decoder};
use crate::ws::connection::{CLOSE_WAIT, CloseReason, Flow, SocketEvent, WsConnection, heartbeat};
use crate::ws::upgrade::UpgradedSocket;
use crate::ws::{client_frame, shell_frames};
use isolet_sandbox::sandbox::{ShellClientOptions, ShellName};
use isolet_sandbox::{AgentError, AgentEvent, Denials, Sandbox, ShellConnection};
use isolet_wire::activity::CloseCause;
use isolet_wire::frame::{DATA_BYTES_MAX, DataFrame};
use isolet_wire::request::AgentRequest;
use isolet_wire::response::{AgentResponse, Closed, RefusalReason};
use std::collections::HashMap;
use std::future::poll_fn;
use std::ops::ControlFlow;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tracing::debug;

/// The longest message: a command of 1 MiB, escaped, and its envelope.
pub(crate) const MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How much output is read from the agent before it is flushed. One frame may exceed it.
const BATCH_BYTES: usize = 128 * 1024;
/// How much standard input may wait for the agent before the client is no longer read.
const INPUT_BYTES_MAX: usize = 256 * 1024;
/// The most commands whose denied traffic is tracked. A shell runs one command at a time.
const TRACKED_COMMANDS_MAX: usize = 1024;

/// A client of a shell, and the options it asked for.
pub(crate) struct AttachedShellClient {
    pub(crate) sandbox: Sandbox,
    /// The connection to the shell's agent.
    pub(crate) link: ShellConnection,
    /// The owner of the command ids.
    pub(crate) owner: String,
    /// Whether the shell ends with this client.
    pub(crate) private: bool,
    /// Whether the client reconnected: commands of its earlier connection may still run.
    pub(crate) resumed: bool,
    /// Whether output is sent as binary frames.
    pub(crate) binary: bool,
    /// Whether the client receives `shell_start`.
    pub(crate) starts: bool,
    /// For the first frame: the shell's name for `?resume=`, and the shell's position.
    pub(crate) opened: Option<(String, String)>,
    /// The timeout of commands without one, in ms; 0 stands for none.
    pub(crate) timeout_ms: u64,
}

struct ShellSocket {
    connection: WsConnection,
    client: AttachedShellClient,
    decoder: Utf8Decoder,
    /// Whether the shell has ended and the client has received `shell_closed`. A session's next
    /// command opens another shell.
    shell_ended: bool,
    /// Running commands that read standard input: cancelling them must not wait behind it.
    stdin_commands: Vec<String>,
    /// Denied traffic since the start of each running command.
    denials: HashMap<String, Denials>,
    /// Denied traffic since the client connected.
    since: Denials,
}

/// Serves a client until either side ends.
pub(crate) async fn run(
    socket: UpgradedSocket,
    client: AttachedShellClient,
    cancellation: Cancellation,
) {
    let connection = WsConnection::new(socket);
    let decoder = Utf8Decoder::default();
    let since = client.sandbox.denials();
    let denials = HashMap::new();
    let mut conversation = ShellSocket {
        connection,
        client,
        decoder,
        shell_ended: false,
        stdin_commands: Vec::new(),
        denials,
        since,
    };
    let end = conversation.serve(cancellation).await;
    conversation.close(end).await;
}

impl ShellSocket {
    async fn serve(&mut self, mut cancellation: Cancellation) -> CloseReason {
        if let Some((shell, at)) = self.client.opened.take()
            && let ControlFlow::Break(end) = self.write(shell_frames::opened(&shell, &at))
        {
            return end;
        }
        let mut clock = heartbeat();
        // Created once for the whole loop, so that messages cost no registration.
        let ended = async move { cancellation.cancelled().await };
        tokio::pin!(ended);
        loop {
            let connection = &mut self.connection;
            let link = &mut self.client.link;
            let unflushed = connection.has_unflushed();
            let full = link.waiting() > INPUT_BYTES_MAX;
            let flow = tokio::select! {
                biased;
                // First, because the other branches are always ready under a steady load.
                reason = &mut ended => ControlFlow::Break(reason.into()),
                event = poll_fn(|cx| connection.poll(cx, full)) => self.event(event).await,
                message = link.next_or_sent(INPUT_BYTES_MAX), if !unflushed => {
                    self.handle_agent(message).await
                }
                // A client whose input waits for its command is not read.
                _ = clock.tick() => self.connection.tick(full),
            };
            if let ControlFlow::Break(end) = flow {
                return end;
            }
        }
    }

    async fn event(&mut self, event: SocketEvent) -> Flow {
        match self.connection.receive(event)? {
            Some(Message::Text(text)) => match client_frame::parse(&text) {
                Ok(frame) => self.handle_frame(frame).await,
                Err((id, failure)) => self.send_error(id.as_deref(), &failure),
            },
            Some(_) => self
                .send_error(None, &ApiError::bad_request("frames of a client must be JSON text")),
            None => ControlFlow::Continue(()),
        }
    }

    async fn handle_frame(&mut self, frame: client_frame::ClientFrame) -> Flow {
        match frame {
            client_frame::ClientFrame::Run { mut run, timeout_ms, stdin } => {
                run.timeout_ms = timeout_ms.unwrap_or(self.client.timeout_ms);
                let id = run.id.clone();
                if run.stdin && !self.stdin_commands.contains(&id) {
                    self.stdin_commands.push(id.clone());
                }
                self.push(&AgentRequest::Run(*run))?;
                match stdin {
                    Some(data) => self.feed(&id, &data, true),
                    None => ControlFlow::Continue(()),
                }
            }
            client_frame::ClientFrame::Stdin { id, .. }
                if !self.client.resumed && !self.stdin_commands.contains(&id) =>
            {
                let message = format!("no command {id} of this client takes standard input");
                self.send_error(
                    Some(&id),
                    &ApiError::from_agent(RefusalReason::BadRequest, message),
                )
            }
            client_frame::ClientFrame::Stdin { id, data, eof } => self.feed(&id, &data, eof),
            client_frame::ClientFrame::Signal { id, signal } => {
                let behind_stdin = self.stdin_commands.contains(&id);
                self.send_urgent(AgentRequest::Signal { id, signal }, behind_stdin).await
            }
            client_frame::ClientFrame::Cancel { id } => {
                let behind_stdin = self.stdin_commands.contains(&id);
                self.send_urgent(AgentRequest::Cancel { id }, behind_stdin).await
            }
        }
    }

    fn feed(&mut self, id: &str, data: &[u8], eof: bool) -> Flow {
        let part =
            |data: &[u8], eof| AgentRequest::Stdin { id: id.to_owned(), data: data.to_vec(), eof };
        let mut parts = data.chunks(DATA_BYTES_MAX).peekable();
        if parts.peek().is_none() {
            return self.push(&part(&[], eof));
        }
        while let Some(data) = parts.next() {
            self.push(&part(data, eof && parts.peek().is_none()))?;
        }
        ControlFlow::Continue(())
    }

    /// Sends a request that must not wait behind standard input. The agent handles the requests of
    /// a connection in order and stops at input that no program reads, so this one gets its own
    /// connection.
    async fn send_urgent(&mut self, ask: AgentRequest, behind_stdin: bool) -> Flow {
        if !behind_stdin {
            return self.push(&ask);
        }
        let shell = self.name();
        let owner = self.client.owner.clone();
        let attach = ShellClientOptions { shell, owner, watch: false, since: None };
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

    fn push(&mut self, ask: &AgentRequest) -> Flow {
        match self.client.link.push(ask) {
            Ok(()) => ControlFlow::Continue(()),
            // The end of the connection will say why.
            Err(error) => {
                debug!(%error, "cannot send a client's request to the agent");
                ControlFlow::Continue(())
            }
        }
    }

    /// Handles a message of the agent, and those that have arrived behind it.
    async fn handle_agent(&mut self, mut message: Result<Option<AgentEvent>, AgentError>) -> Flow {
        let mut bytes = 0;
        loop {
            match message {
                Ok(None) => return ControlFlow::Continue(()),
                Ok(Some(message)) => {
                    if matches!(message, AgentEvent::Response(AgentResponse::Exit(_))) {
                        self.since.settle().await;
                    }
                    self.forward(message, &mut bytes)?;
                }
                Err(error) => return self.lost(&error).await,
            }
            if bytes >= BATCH_BYTES {
                return ControlFlow::Continue(());
            }
            message = self.client.link.try_next();
        }
    }

    /// Forwards a message of the agent, and adds its size to `bytes`.
    fn forward(&mut self, message: AgentEvent, bytes: &mut usize) -> Flow {
        let response = match message {
            AgentEvent::Response(response) => response,
            AgentEvent::Data(body) => {
                *bytes += body.len();
                self.shell_ended = false;
                return self.data(body);
            }
        };
        match response {
            AgentResponse::Exit(exit) => {
                self.shell_ended = false;
                self.stdin_commands.retain(|id| *id != exit.id);
                let rest = self.decoder.end(&exit.id);
                self.chunks(&rest)?;
                let denied = self.denials.remove(&exit.id).unwrap_or_else(|| self.since.clone());
                let lost = LostFields::take(&self.client.sandbox);
                self.write(shell_frames::exit(&exit, lost, denied.now().into()))
            }
            AgentResponse::Started { id, command } => {
                let command = command.filter(|_| self.client.starts);
                let frame = command.map(|command| shell_frames::start(&id, &command));
                self.track_denials(id);
                frame.map_or(ControlFlow::Continue(()), |message| self.write(message))
            }
            AgentResponse::Gap { stream, from, to } => {
                let rest = self.decoder.gap(stream);
                self.chunks(&rest)?;
                self.write(shell_frames::gap(stream, from, to))
            }
            AgentResponse::Refused { id, reason, message } => {
                if let Some(id) = id.as_ref().filter(|_| reason != RefusalReason::IdInUse) {
                    self.stdin_commands.retain(|other| other != id);
                }
                self.send_error(id.as_deref(), &ApiError::from_agent(reason, message))
            }
            AgentResponse::Closed(closed) => self.closed(&closed),
            _ => ControlFlow::Continue(()),
        }
    }

    /// Tracks denied traffic from the start of a command.
    fn track_denials(&mut self, id: String) {
        if self.denials.len() < TRACKED_COMMANDS_MAX {
            self.denials.insert(id, self.client.sandbox.denials());
        }
    }

    fn data(&mut self, body: Bytes) -> Flow {
        if self.client.binary {
            // The body has the layout of the frame.
            return self.write(Message::Binary(body));
        }
        let Ok(DataFrame { stream, offset, id, bytes }) = DataFrame::parse(body) else {
            return ControlFlow::Break(CloseReason::Close(
                CloseCode::Error,
                "the agent sent a bad frame",
            ));
        };
        match self.decoder.decode_chunk(stream, &id, offset, &bytes) {
            Some(chunk) => {
                let message = shell_frames::output(&chunk);
                self.write(message)
            }
            None => ControlFlow::Continue(()),
        }
    }

    fn chunks(&mut self, chunks: &[TextChunk<'_>]) -> Flow {
        chunks.iter().try_for_each(|chunk| self.write(shell_frames::output(chunk)))
    }

    fn closed(&mut self, closed: &Closed) -> Flow {
        let rest = self.decoder.close();
        self.chunks(&rest)?;
        self.write(shell_frames::closed(closed))?;
        self.stdin_commands.clear();
        self.denials.clear();
        self.shell_ended = true;
        if self.client.private {
            return ControlFlow::Break(CloseReason::Close(
                CloseCode::Normal,
                "the shell has ended",
            ));
        }
        ControlFlow::Continue(())
    }

    /// Handles a broken connection: the sandbox or session was deleted, or the agent failed.
    async fn lost(&mut self, error: &AgentError) -> Flow {
        if let AgentError::Departed(_) = error {
            // The node that it is on now says what became of the shell.
            return ControlFlow::Break(CloseReason::Close(CloseCode::Restart, "come back"));
        }
        if let AgentError::Destroyed(_) = error {
            let rest = self.decoder.close();
            self.chunks(&rest)?;
            self.write(shell_frames::ended_with(&ApiError::from(error.clone())))?;
            return ControlFlow::Break(CloseReason::destroyed());
        }
        if let AgentError::Slept(_) = error {
            let rest = self.decoder.close();
            self.chunks(&rest)?;
            self.write(shell_frames::ended_with(&ApiError::from(error.clone())))?;
            return ControlFlow::Break(CloseReason::slept());
        }
        if self.client.link.session_ended() {
            let rest = self.decoder.close();
            self.chunks(&rest)?;
            self.write(shell_frames::ended_with(&ApiError::from(AgentError::SessionEnded)))?;
            let end = CloseReason::Close(CloseCode::Away, "session_ended");
            return ControlFlow::Break(end);
        }
        let Ok(error) = timeout(CLOSE_WAIT, self.client.sandbox.ended()).await else {
            debug!(%error, "the agent connection of a client broke");
            return ControlFlow::Break(CloseReason::Close(CloseCode::Restart, "come back"));
        };
        if matches!(error, isolet_sandbox::Error::Stopping) {
            return ControlFlow::Break(CloseReason::Close(CloseCode::Restart, "come back"));
        }
        let ended =
            Closed { code: None, signal: None, cause: CloseCause::Other(error.to_string()) };
        if !self.shell_ended {
            self.closed(&ended)?;
        }
        ControlFlow::Break(CloseReason::Close(CloseCode::Away, "the sandbox has ended"))
    }

    fn send_error(&mut self, id: Option<&str>, failure: &ApiError) -> Flow {
        self.connection.reply(shell_frames::error(id, failure))
    }

    fn write(&mut self, message: Message) -> Flow {
        self.connection.write(message)
    }

    async fn close(self, end: CloseReason) {
        // The private shell of a client that disconnected lingers in the agent and waits for its
        // return.
        if matches!(end, CloseReason::ClosedByClient) && self.client.private {
            let shell = self.name();
            let _ = timeout(CLOSE_WAIT, self.client.sandbox.close(&shell)).await;
        }
        self.connection.close(end).await;
    }
}
