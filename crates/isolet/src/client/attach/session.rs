//! An attached terminal: sends input, draws output, and reconnects a lost connection, at the same
//! byte if possible and with a snapshot of the screen otherwise.

use super::attached_terminal::{AttachedTerminal, TerminalGone};
use super::connection::{ConnectionEvent, ServerConnection};
use super::keys::{DetachKeys, KeyWatch};
use super::signals::Signals;
use super::socket::{TerminalFrame, TerminalSocket};
use super::tty::{self, Tty};
use crate::client::ApiClient;
use crate::client::output::sanitize;
use crate::client::server_error::ServerError;
use anyhow::Result;
use bytes::{Buf, Bytes};
use serde_json::{Value, json};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Stdin, Stdout};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;

/// Why the client is view-only although it did not ask for that.
pub(super) const KEY_IS_READ_ONLY: &str = "this key is read-only";
/// The most typed bytes that wait to be sent. More stays in the user's terminal.
const TYPED_BYTES_MAX: usize = 256 * 1024;
/// The longest message of typed bytes: the limit of the server.
const SENT_BYTES_MAX: usize = 32 * 1024;
/// The longest pause between two of the detach keys.
const KEY_SEQUENCE_TIMEOUT: Duration = Duration::from_millis(500);
/// The interval between pings to the server.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// A connection without any message for this time counts as lost.
const SERVER_TIMEOUT: Duration = Duration::from_secs(15);
/// A connection that is restored within this time is not reported on the screen.
const SILENT_RECONNECT: Duration = Duration::from_millis(1500);
/// A size counts as stable after this time.
const SIZE_SETTLED: Duration = Duration::from_secs(1);
/// How long a status line stays on the screen.
const LINE_SHOWN: Duration = Duration::from_secs(3);
/// A pause in typing after which input counts as complete.
const TYPING_PAUSE: Duration = Duration::from_millis(300);
/// How long the user's terminal may take to draw the last bytes.
const LAST_DRAW_TIMEOUT: Duration = Duration::from_secs(1);

/// Why the client is no longer attached.
pub(super) enum DetachReason {
    /// The detach keys were typed.
    Detached,
    /// The terminal's program has ended: exit code, and the signal's name.
    Exit(i64, Option<String>),
    /// A signal ended this program; its exit code.
    Signalled(i64),
    /// Attaching again is impossible, and why.
    Gone(String),
}

/// A client that is attached to a terminal.
///
/// More than 12 fields: they are the state of one event loop, which decides on all of them together.
pub(super) struct AttachSession {
    server: Rc<ApiClient>,
    terminal: AttachedTerminal,
    tty: Tty,
    connection: ServerConnection,
    stdin: Stdin,
    stdout: Stdout,
    /// Output that is not drawn yet.
    drawing: Bytes,
    typed: Vec<u8>,
    typed_at: Instant,
    /// The detach keys, and Ctrl-C, which detaches while the terminal is not reachable or is view-only.
    watch: KeyWatch,
    break_off: KeyWatch,
    held_since: Instant,
    /// The window's size changed since the last resize message.
    resized: bool,
    /// When to redraw the screen to remove a status line.
    redraw: Option<Instant>,
    pinged_at: Instant,
    /// Since when the terminal's size differs from the window's, and whether that was reported.
    foreign: Option<Instant>,
    compared: bool,
    /// Whether the snapshot is drawn, and the status line to show then.
    ready: bool,
    later: Option<String>,
    /// The detach keys as text for people.
    leaving: String,
    /// View-only: input is not sent.
    view: bool,
}

impl AttachSession {
    /// Continues with an attached socket. `looks` is the reason why the client is view-only, if it is.
    pub(super) fn new(
        server: Rc<ApiClient>,
        terminal: AttachedTerminal,
        socket: TerminalSocket,
        keys: DetachKeys,
        view_reason: Option<&str>,
    ) -> Result<Self> {
        let now = Instant::now();
        let leaving = keys.to_string();
        let mut tty = Tty::raw()?;
        let drawing = Bytes::from(tty.begin());
        let break_off = DetachKeys::parse("ctrl-c").map_err(anyhow::Error::msg)?;
        let mut session = Self {
            server,
            terminal,
            tty,
            connection: ServerConnection::open(socket),
            stdin: tokio::io::stdin(),
            stdout: tokio::io::stdout(),
            drawing,
            typed: Vec::new(),
            typed_at: now,
            watch: KeyWatch::new(keys),
            break_off: KeyWatch::new(break_off),
            held_since: now,
            resized: false,
            redraw: None,
            pinged_at: now,
            foreign: None,
            compared: false,
            ready: false,
            later: None,
            leaving,
            view: view_reason.is_some(),
        };
        if let Some(reason) = view_reason {
            session.show_view_line(reason);
        }
        Ok(session)
    }

    /// Shows why the client is view-only, and how to detach.
    fn show_view_line(&mut self, reason: &str) {
        self.show_line(&format!("isolet: {reason}; {} or Ctrl-C detaches", self.leaving));
    }

    /// Shows a status line for a moment, then redraws the screen.
    fn show_line(&mut self, text: &str) {
        if !self.ready && matches!(self.connection, ServerConnection::Open { .. }) {
            // Pending output would overwrite the line.
            self.later = Some(text.to_owned());
            return;
        }
        let mut bytes = self.drawing.to_vec();
        bytes.extend_from_slice(Tty::line(text).as_bytes());
        self.drawing = bytes.into();
        self.terminal.require_redraw();
        self.redraw = Some(Instant::now() + LINE_SHOWN);
    }

    /// Runs until the client detaches, and restores the user's terminal.
    pub(super) async fn run(mut self) -> Result<(DetachReason, bool)> {
        let mut signals = Signals::new()?;
        let end = self.attach_loop(&mut signals).await?;
        let last = async {
            while !self.drawing.is_empty() {
                draw(&mut self.stdout, &mut self.drawing).await?;
            }
            self.stdout.flush().await?;
            anyhow::Ok(())
        };
        let _ = timeout(LAST_DRAW_TIMEOUT, last).await;
        if !self.view {
            self.send();
        }
        if let ServerConnection::Open { socket, .. } = self.connection {
            socket.close().await;
        }
        drop(self.tty);
        Ok((end, self.terminal.line_open()))
    }

    async fn attach_loop(&mut self, signals: &mut Signals) -> Result<DetachReason> {
        let mut input = vec![0; 64 * 1024];
        loop {
            self.send();
            let alarm = self.next_deadline();
            let drawn = self.drawing.is_empty();
            let read = self.typed.len() < TYPED_BYTES_MAX;
            tokio::select! {
                () = sleep_until(alarm) => self.on_deadline(),
                done = draw(&mut self.stdout, &mut self.drawing), if !drawn => {
                    self.connection.mark_alive();
                    done?;
                }
                event = self.connection.next(drawn) => {
                    if let Some(end) = self.handle_event(event) {
                        return Ok(end);
                    }
                }
                count = self.stdin.read(&mut input), if read => {
                    let count = count.unwrap_or(0);
                    // The user's terminal was closed.
                    if count == 0 {
                        return Ok(DetachReason::Signalled(128 + 1));
                    }
                    if self.handle_input(&input[..count]) {
                        return Ok(DetachReason::Detached);
                    }
                }
                _ = signals.window.recv() => self.resized = true,
                code = signals.ended.recv() => return Ok(DetachReason::Signalled(code)),
            }
        }
    }

    /// Passes pending messages to the socket, as far as it accepts them.
    fn send(&mut self) {
        let ServerConnection::Open { socket, .. } = &mut self.connection else { return };
        if !socket.is_idle() {
            return;
        }
        if self.resized {
            self.resized = false;
            let (cols, rows) = tty::size();
            let frame = json!({"type": "resize", "cols": cols, "rows": rows});
            if !self.view {
                return socket.start_send(Message::text(frame.to_string()));
            }
        }
        if !self.typed.is_empty() {
            let count = self.typed.len().min(SENT_BYTES_MAX);
            let rest = self.typed.split_off(count);
            let now = std::mem::replace(&mut self.typed, rest);
            return socket.start_send(Message::binary(now));
        }
        if self.pinged_at.elapsed() >= PING_INTERVAL {
            self.pinged_at = Instant::now();
            socket.start_send(Message::Ping(Bytes::new()));
        }
    }

    /// When the next timer is due.
    fn next_deadline(&self) -> Instant {
        let mut alarm = match &self.connection {
            ServerConnection::Open { socket, last_received } if socket.is_idle() => {
                (self.pinged_at + PING_INTERVAL).min(*last_received + SERVER_TIMEOUT)
            }
            ServerConnection::Open { last_received, .. } => *last_received + SERVER_TIMEOUT,
            ServerConnection::Lost { since, announced: false, .. } => *since + SILENT_RECONNECT,
            ServerConnection::Lost { .. } => Instant::now() + PING_INTERVAL,
        };
        if self.watch.holds() {
            alarm = alarm.min(self.held_since + KEY_SEQUENCE_TIMEOUT);
        }
        let settled = self.foreign.map(|since| since + SIZE_SETTLED);
        [self.redraw, settled].into_iter().flatten().fold(alarm, Instant::min)
    }

    fn on_deadline(&mut self) {
        let now = Instant::now();
        if self.watch.holds() && self.held_since.elapsed() >= KEY_SEQUENCE_TIMEOUT {
            self.watch.release(&mut self.typed);
        }
        match &mut self.connection {
            // While drawing is slow, silence does not mean that the server is gone.
            ServerConnection::Open { .. } if !self.drawing.is_empty() => {
                self.connection.mark_alive()
            }
            ServerConnection::Open { last_received, .. }
                if last_received.elapsed() >= SERVER_TIMEOUT =>
            {
                self.reconnect()
            }
            ServerConnection::Open { socket, .. } if self.redraw.is_some_and(|at| at <= now) => {
                // Not between two keys of a sequence: one could get lost with the connection.
                let still = socket.is_idle()
                    && self.typed.is_empty()
                    && self.typed_at + TYPING_PAUSE <= now;
                if still { self.reconnect() } else { self.redraw = Some(now + TYPING_PAUSE) }
            }
            ServerConnection::Lost { since, announced, .. }
                if !*announced && since.elapsed() >= SILENT_RECONNECT =>
            {
                *announced = true;
                // Input that is typed while the connection is lost is dropped: the screen may differ later.
                self.typed.clear();
                self.show_line("isolet: connection lost; reconnecting (Ctrl-C detaches)");
                self.redraw = None;
                // The waiting attempt would resume at a byte and leave the status line on the screen.
                let reattach = self.terminal.reattach(tty::size());
                self.connection.retry(&self.server, reattach);
            }
            _ => self.warn_about_size(now),
        }
    }

    /// Reports once that another client set the terminal's size, after the size is stable.
    fn warn_about_size(&mut self, now: Instant) {
        let window = tty::size();
        let Some((cols, rows)) = self.terminal.foreign_size(window).filter(|_| !self.compared)
        else {
            self.foreign = None;
            return;
        };
        if *self.foreign.get_or_insert(now) + SIZE_SETTLED <= now {
            self.compared = true;
            let yours = if self.view { "" } else { "; type to resize it to your window" };
            self.show_line(&format!(
                "isolet: this terminal is {cols}x{rows}, your window is {}x{}{yours}",
                window.0, window.1
            ));
        }
    }

    /// Handles typed input. Returns true when the detach keys were typed.
    fn handle_input(&mut self, input: &[u8]) -> bool {
        let mut typed = Vec::new();
        let held = self.watch.holds();
        if self.watch.read(input, &mut typed) {
            // Input before the detach keys is still sent to the program.
            self.typed.append(&mut typed);
            return true;
        }
        if self.watch.holds() && !held {
            self.held_since = Instant::now();
        }
        if self.view || matches!(self.connection, ServerConnection::Lost { announced: true, .. }) {
            return self.break_off.read(&typed, &mut Vec::new());
        }
        self.typed.append(&mut typed);
        self.typed_at = Instant::now();
        false
    }

    /// Handles a frame, or the end of an attempt to reconnect.
    fn handle_event(&mut self, event: ConnectionEvent) -> Option<DetachReason> {
        match event {
            ConnectionEvent::Sent | ConnectionEvent::Received(TerminalFrame::Other) => {}
            ConnectionEvent::Received(TerminalFrame::Bytes(bytes)) => {
                self.drawing = self.terminal.output(bytes);
                self.tty.watch(&self.drawing);
            }
            ConnectionEvent::Received(TerminalFrame::Json(message)) => {
                return self.on_message(&message);
            }
            ConnectionEvent::Received(TerminalFrame::Closed(_)) => self.reconnect(),
            ConnectionEvent::Reconnected(opened) => return self.on_reconnected(*opened),
        }
        None
    }

    /// Handles the end of an attempt to reconnect.
    fn on_reconnected(&mut self, opened: Result<(TerminalSocket, Value)>) -> Option<DetachReason> {
        match opened {
            Ok((socket, attached)) => {
                self.terminal.attached(&attached);
                self.ready = false;
                self.connection = ServerConnection::open(socket);
            }
            Err(error) => {
                if let Some(gone) = error.downcast_ref::<TerminalGone>() {
                    return Some(DetachReason::Gone(gone.to_string()));
                }
                if error
                    .downcast_ref::<ServerError>()
                    .is_some_and(|refused| !refused.is_transient())
                {
                    return Some(DetachReason::Gone(format!("{error:#}")));
                }
                let reattach = self.terminal.reattach(tty::size());
                self.connection.retry(&self.server, reattach);
            }
        }
        None
    }

    fn on_message(&mut self, message: &Value) -> Option<DetachReason> {
        match message["type"].as_str().unwrap_or_default() {
            "exit" => {
                let code = message["code"].as_i64().unwrap_or(1);
                return Some(DetachReason::Exit(code, message["signal"].as_str().map(sanitize)));
            }
            "ready" => {
                self.ready = true;
                if let Some(text) = self.later.take() {
                    self.show_line(&text);
                }
            }
            "error" => {
                let reason = sanitize(message["message"].as_str().unwrap_or_default());
                self.show_line(&format!("isolet: {reason}"));
            }
            _ => {
                self.terminal.apply(message);
                if self.terminal.is_view_only() && !std::mem::replace(&mut self.view, true) {
                    self.show_view_line(KEY_IS_READ_ONLY);
                }
                self.warn_about_size(Instant::now());
            }
        }
        None
    }

    /// Closes the connection and starts to reconnect.
    fn reconnect(&mut self) {
        self.redraw = None;
        self.foreign = None;
        self.connection = ServerConnection::lost(&self.server, self.terminal.reattach(tty::size()));
    }
}

/// Draws a part of `drawing`. Cancel safe: bytes that are not written stay in `drawing`.
async fn draw(stdout: &mut Stdout, drawing: &mut Bytes) -> std::io::Result<()> {
    let count = stdout.write(drawing).await?;
    drawing.advance(count);
    if drawing.is_empty() { stdout.flush().await } else { Ok(()) }
}
