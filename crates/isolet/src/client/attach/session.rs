//! An attached terminal: input is sent, output is drawn, and a lost connection is reconnected, at the same
//! byte where that is possible and with the same screen otherwise.

use super::{
    attached_terminal::{AttachedTerminal, TerminalGone},
    connection::{Connection, ConnectionEvent},
    keys::{Keys, Watch},
    signals::Signals,
    socket::{TerminalFrame, TerminalSocket},
    tty::{self, Tty},
};
use crate::client::{Server, output::sanitize, server_error::ServerError};
use anyhow::Result;
use bytes::{Buf, Bytes};
use serde_json::{Value, json};
use std::{rc::Rc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Stdin, Stdout},
    time::{Instant, sleep_until, timeout},
};
use tokio_tungstenite::tungstenite::Message;

/// Why the client is view-only although it did not ask for that.
pub(super) const KEY_IS_READ_ONLY: &str = "this key may only look";
/// Typed and not yet sent, at most, in bytes. More is left to the terminal that it is typed at.
const TYPED_BYTES_MAX: usize = 256 * 1024;
/// The longest message of typed bytes: what the server takes at once.
const SENT_BYTES_MAX: usize = 32 * 1024;
/// After the first of the keys to leave, the next one comes within this, or was not meant.
const KEY_SEQUENCE_TIMEOUT: Duration = Duration::from_millis(500);
/// How often the server is asked whether it is there.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// A server that says nothing for so long is not.
const SERVER_TIMEOUT: Duration = Duration::from_secs(15);
/// A connection that is back sooner was never gone, to a person.
const SILENT_RECONNECT: Duration = Duration::from_millis(1500);
/// A size that stands for so long is not just changing.
const SIZE_SETTLED: Duration = Duration::from_secs(1);
/// How long a line about the connection stands on the screen.
const LINE_SHOWN: Duration = Duration::from_secs(3);
/// A pause in typing.
const TYPING_PAUSE: Duration = Duration::from_millis(300);
/// How long the terminal may take to draw the last bytes.
const LAST_DRAW_TIMEOUT: Duration = Duration::from_secs(1);

/// Why the client is not attached any more.
pub(super) enum End {
    /// The detach keys were typed.
    Detached,
    /// The terminal's program has ended: exit code, and the signal's name.
    Exit(i64, Option<String>),
    /// A signal ended this program; its exit code.
    Signalled(i64),
    /// It cannot be attached to again, and why.
    Gone(String),
}

/// A client that is attached to a terminal.
pub(super) struct AttachSession {
    server: Rc<Server>,
    terminal: AttachedTerminal,
    tty: Tty,
    connection: Connection,
    stdin: Stdin,
    stdout: Stdout,
    /// To be drawn.
    drawing: Bytes,
    typed: Vec<u8>,
    typed_at: Instant,
    /// The keys to leave; Ctrl-C, which leaves while nothing runs that could want it.
    watch: Watch,
    break_off: Watch,
    held_since: Instant,
    /// The window has another size than the server knows.
    resized: bool,
    /// When the screen is to be drawn anew, because a line of ours stands on it.
    redraw: Option<Instant>,
    pinged_at: Instant,
    /// Since when the terminal has another size than the window, and whether that was said.
    foreign: Option<Instant>,
    compared: bool,
    /// What stood is drawn; and what is to be said then.
    ready: bool,
    later: Option<String>,
    /// The keys to leave, for people.
    leaving: String,
    /// Typing is refused: somebody who only looks.
    view: bool,
}

impl AttachSession {
    /// Goes on with a link that is attached; `looks` says why it only looks, where it does.
    pub(super) fn new(
        server: Rc<Server>,
        terminal: AttachedTerminal,
        socket: TerminalSocket,
        keys: Keys,
        view_reason: Option<&str>,
    ) -> Result<Self> {
        let now = Instant::now();
        let leaving = keys.to_string();
        let mut tty = Tty::raw()?;
        let drawing = Bytes::from(tty.begin());
        let break_off = Keys::parse("ctrl-c").map_err(anyhow::Error::msg)?;
        let mut session = Self {
            server,
            terminal,
            tty,
            connection: Connection::open(socket),
            stdin: tokio::io::stdin(),
            stdout: tokio::io::stdout(),
            drawing,
            typed: Vec::new(),
            typed_at: now,
            watch: Watch::new(keys),
            break_off: Watch::new(break_off),
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
        if let Some(why) = view_reason {
            session.show_view_line(why);
        }
        Ok(session)
    }

    /// Says how somebody leaves who only looks.
    fn show_view_line(&mut self, why: &str) {
        self.show_line(&format!("isolet: {why}; {} or Ctrl-C leaves", self.leaving));
    }

    /// Shows a line until it has been read, then draws the screen anew.
    fn show_line(&mut self, text: &str) {
        if !self.ready && matches!(self.connection, Connection::Open { .. }) {
            // What is still to be drawn would go over it.
            self.later = Some(text.to_owned());
            return;
        }
        let mut bytes = self.drawing.to_vec();
        bytes.extend_from_slice(Tty::line(text).as_bytes());
        self.drawing = bytes.into();
        self.terminal.require_redraw();
        self.redraw = Some(Instant::now() + LINE_SHOWN);
    }

    /// Stays until the end, and puts the user's terminal back.
    pub(super) async fn run(mut self) -> Result<(End, bool)> {
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
        if let Connection::Open { socket, .. } = self.connection {
            socket.close().await;
        }
        drop(self.tty);
        Ok((end, self.terminal.line_open()))
    }

    async fn attach_loop(&mut self, signals: &mut Signals) -> Result<End> {
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
                    // The terminal is gone.
                    if count == 0 {
                        return Ok(End::Signalled(128 + 1));
                    }
                    if self.handle_input(&input[..count]) {
                        return Ok(End::Detached);
                    }
                }
                _ = signals.window.recv() => self.resized = true,
                code = signals.ended.recv() => return Ok(End::Signalled(code)),
            }
        }
    }

    /// Gives the link what is to be sent, as far as it takes it.
    fn send(&mut self) {
        let Connection::Open { socket, .. } = &mut self.connection else { return };
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

    /// When the next thing is due by itself.
    fn next_deadline(&self) -> Instant {
        let mut alarm = match &self.connection {
            Connection::Open { socket, last_received } if socket.is_idle() => {
                (self.pinged_at + PING_INTERVAL).min(*last_received + SERVER_TIMEOUT)
            }
            Connection::Open { last_received, .. } => *last_received + SERVER_TIMEOUT,
            Connection::Lost { since, announced: false, .. } => *since + SILENT_RECONNECT,
            Connection::Lost { .. } => Instant::now() + PING_INTERVAL,
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
            // Who draws slowly has not been left by the server.
            Connection::Open { .. } if !self.drawing.is_empty() => self.connection.mark_alive(),
            Connection::Open { last_received, .. } if last_received.elapsed() >= SERVER_TIMEOUT => {
                self.reconnect()
            }
            Connection::Open { socket, .. } if self.redraw.is_some_and(|at| at <= now) => {
                // Not between two keys: one could get lost with the connection.
                let still = socket.is_idle()
                    && self.typed.is_empty()
                    && self.typed_at + TYPING_PAUSE <= now;
                if still { self.reconnect() } else { self.redraw = Some(now + TYPING_PAUSE) }
            }
            Connection::Lost { since, announced, .. }
                if !*announced && since.elapsed() >= SILENT_RECONNECT =>
            {
                *announced = true;
                // What is typed while nothing answers is not meant for whatever is there later.
                self.typed.clear();
                self.show_line("isolet: the connection is lost; trying again (Ctrl-C leaves)");
                self.redraw = None;
                // The try that waits would go on at a byte, and leave the line where it is.
                let reattach = self.terminal.reattach(tty::size());
                self.connection.retry(&self.server, reattach);
            }
            _ => self.warn_about_size(now),
        }
    }

    /// Says once that the terminal has somebody else's size, when it is not just changing.
    fn warn_about_size(&mut self, now: Instant) {
        let window = tty::size();
        let Some((cols, rows)) = self.terminal.foreign_size(window).filter(|_| !self.compared)
        else {
            self.foreign = None;
            return;
        };
        if *self.foreign.get_or_insert(now) + SIZE_SETTLED <= now {
            self.compared = true;
            let yours = if self.view { "" } else { "; typing makes it yours" };
            self.show_line(&format!(
                "isolet: this terminal is {cols}x{rows}, your window {}x{}{yours}",
                window.0, window.1
            ));
        }
    }

    /// What was typed; true when it says to leave.
    fn handle_input(&mut self, input: &[u8]) -> bool {
        let mut typed = Vec::new();
        let held = self.watch.holds();
        if self.watch.read(input, &mut typed) {
            // What was typed before is still meant for the program.
            self.typed.append(&mut typed);
            return true;
        }
        if self.watch.holds() && !held {
            self.held_since = Instant::now();
        }
        if self.view || matches!(self.connection, Connection::Lost { announced: true, .. }) {
            return self.break_off.read(&typed, &mut Vec::new());
        }
        self.typed.append(&mut typed);
        self.typed_at = Instant::now();
        false
    }

    /// Something came, or another try is over.
    fn handle_event(&mut self, event: ConnectionEvent) -> Option<End> {
        match event {
            ConnectionEvent::Sent | ConnectionEvent::Received(TerminalFrame::Other) => {}
            ConnectionEvent::Received(TerminalFrame::Bytes(bytes)) => {
                self.drawing = self.terminal.output(bytes)
            }
            ConnectionEvent::Received(TerminalFrame::Json(message)) => {
                return self.on_message(&message);
            }
            ConnectionEvent::Received(TerminalFrame::Closed(_)) => self.reconnect(),
            ConnectionEvent::Reconnected(opened) => return self.on_reconnected(*opened),
        }
        None
    }

    /// A try is over.
    fn on_reconnected(&mut self, opened: Result<(TerminalSocket, Value)>) -> Option<End> {
        match opened {
            Ok((socket, attached)) => {
                self.terminal.attached(&attached);
                self.ready = false;
                self.connection = Connection::open(socket);
            }
            Err(error) => {
                if let Some(gone) = error.downcast_ref::<TerminalGone>() {
                    return Some(End::Gone(gone.to_string()));
                }
                if error
                    .downcast_ref::<ServerError>()
                    .is_some_and(|refused| !refused.is_transient())
                {
                    return Some(End::Gone(format!("{error:#}")));
                }
                let reattach = self.terminal.reattach(tty::size());
                self.connection.retry(&self.server, reattach);
            }
        }
        None
    }

    fn on_message(&mut self, message: &Value) -> Option<End> {
        match message["type"].as_str().unwrap_or_default() {
            "exit" => {
                let code = message["code"].as_i64().unwrap_or(1);
                return Some(End::Exit(code, message["signal"].as_str().map(sanitize)));
            }
            "ready" => {
                self.ready = true;
                if let Some(text) = self.later.take() {
                    self.show_line(&text);
                }
            }
            "error" => {
                let why = sanitize(message["message"].as_str().unwrap_or_default());
                self.show_line(&format!("isolet: {why}"));
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

    /// The connection is no more, or is given up for a new one.
    fn reconnect(&mut self) {
        self.redraw = None;
        self.foreign = None;
        self.connection = Connection::lost(&self.server, self.terminal.reattach(tty::size()));
    }
}

/// Draws a part. What is dropped in the middle is not lost: it stays in `drawing`.
async fn draw(stdout: &mut Stdout, drawing: &mut Bytes) -> std::io::Result<()> {
    let count = stdout.write(drawing).await?;
    drawing.advance(count);
    if drawing.is_empty() { stdout.flush().await } else { Ok(()) }
}
