//! Staying attached: what is typed goes in, what the terminal shows comes out, and a connection
//! that is lost is made again, to the byte where that is possible and to the same screen otherwise.

use super::{
    keys::{Keys, Watch},
    link::{Came, Link},
    place::{Gone, Place},
    signals::Signals,
    tty::{self, Tty},
    way::{Turn, Way},
};
use crate::client::{Server, refused::Refused, speak::plain};
use anyhow::Result;
use bytes::{Buf, Bytes};
use serde_json::{Value, json};
use std::{rc::Rc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Stdin, Stdout},
    time::{Instant, sleep_until, timeout},
};
use tokio_tungstenite::tungstenite::Message;

/// Why somebody only looks who did not ask for that.
pub(super) const MAY_LOOK: &str = "this key may only look";
/// Typed and not yet sent, at most, in bytes. More is left to the terminal that it is typed at.
const TYPED_BYTES_MAX: usize = 256 * 1024;
/// The longest message of typed bytes: what the server takes at once.
const SENT_BYTES_MAX: usize = 32 * 1024;
/// After the first of the keys to leave, the next one comes within this, or was not meant.
const HOLD: Duration = Duration::from_millis(500);
/// How often the server is asked whether it is there.
const ASK: Duration = Duration::from_secs(5);
/// A server that says nothing for so long is not.
const SILENT: Duration = Duration::from_secs(15);
/// A connection that is back sooner was never gone, to a person.
const BLINK: Duration = Duration::from_millis(1500);
/// A size that stands for so long is not just changing.
const SETTLED: Duration = Duration::from_secs(1);
/// How long a line about the connection stands on the screen.
const SHOWN: Duration = Duration::from_secs(3);
/// A pause in typing.
const STILL: Duration = Duration::from_millis(300);
/// How long the terminal may take to draw the last bytes.
const LAST: Duration = Duration::from_secs(1);

/// Why somebody is not attached any more.
pub(super) enum End {
    /// The keys were typed.
    Left,
    /// The terminal's program has ended: exit code, and the signal's name.
    Exit(i64, Option<String>),
    /// This program was told to end.
    Told(i64),
    /// It cannot be attached to again, and why.
    Gone(String),
}

/// Somebody at a terminal, attached to another.
pub(super) struct Stay {
    server: Rc<Server>,
    place: Place,
    tty: Tty,
    way: Way,
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
    asked: Instant,
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

impl Stay {
    /// Goes on with a link that is attached; `looks` says why it only looks, where it does.
    pub(super) fn new(
        server: Rc<Server>,
        place: Place,
        link: Link,
        keys: Keys,
        looks: Option<&str>,
    ) -> Result<Self> {
        let now = Instant::now();
        let leaving = keys.to_string();
        let mut tty = Tty::raw()?;
        let drawing = Bytes::from(tty.begin());
        let break_off = Keys::parse("ctrl-c").map_err(anyhow::Error::msg)?;
        let mut stay = Self {
            server,
            place,
            tty,
            way: Way::open(link),
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
            asked: now,
            foreign: None,
            compared: false,
            ready: false,
            later: None,
            leaving,
            view: looks.is_some(),
        };
        if let Some(why) = looks {
            stay.say_view(why);
        }
        Ok(stay)
    }

    /// Says how somebody leaves who only looks.
    fn say_view(&mut self, why: &str) {
        self.say(&format!("isolet: {why}; {} or Ctrl-C leaves", self.leaving));
    }

    /// Shows a line until it has been read, then draws the screen anew.
    fn say(&mut self, text: &str) {
        if !self.ready && matches!(self.way, Way::Open { .. }) {
            // What is still to be drawn would go over it.
            self.later = Some(text.to_owned());
            return;
        }
        let mut bytes = self.drawing.to_vec();
        bytes.extend_from_slice(Tty::line(text).as_bytes());
        self.drawing = bytes.into();
        self.place.spoil();
        self.redraw = Some(Instant::now() + SHOWN);
    }

    /// Stays until the end, and puts the user's terminal back.
    pub(super) async fn run(mut self) -> Result<(End, bool)> {
        let mut signals = Signals::new()?;
        let end = self.attached(&mut signals).await?;
        let last = async {
            while !self.drawing.is_empty() {
                draw(&mut self.stdout, &mut self.drawing).await?;
            }
            self.stdout.flush().await?;
            anyhow::Ok(())
        };
        let _ = timeout(LAST, last).await;
        if !self.view {
            self.send();
        }
        if let Way::Open { link, .. } = self.way {
            link.close().await;
        }
        drop(self.tty);
        Ok((end, self.place.line_open()))
    }

    async fn attached(&mut self, signals: &mut Signals) -> Result<End> {
        let mut input = vec![0; 64 * 1024];
        loop {
            self.send();
            let alarm = self.alarm();
            let drawn = self.drawing.is_empty();
            let read = self.typed.len() < TYPED_BYTES_MAX;
            tokio::select! {
                () = sleep_until(alarm) => self.rung(),
                done = draw(&mut self.stdout, &mut self.drawing), if !drawn => {
                    self.way.hear();
                    done?;
                }
                came = self.way.next(drawn) => {
                    if let Some(end) = self.take(came) {
                        return Ok(end);
                    }
                }
                count = self.stdin.read(&mut input), if read => {
                    let count = count.unwrap_or(0);
                    // The terminal is gone.
                    if count == 0 {
                        return Ok(End::Told(128 + 1));
                    }
                    if self.keys(&input[..count]) {
                        return Ok(End::Left);
                    }
                }
                _ = signals.window.recv() => self.resized = true,
                code = signals.ended.recv() => return Ok(End::Told(code)),
            }
        }
    }

    /// Gives the link what is to be sent, as far as it takes it.
    fn send(&mut self) {
        let Way::Open { link, .. } = &mut self.way else { return };
        if !link.idle() {
            return;
        }
        if self.resized {
            self.resized = false;
            let (cols, rows) = tty::size();
            let frame = json!({"type": "resize", "cols": cols, "rows": rows});
            if !self.view {
                return link.give(Message::text(frame.to_string()));
            }
        }
        if !self.typed.is_empty() {
            let count = self.typed.len().min(SENT_BYTES_MAX);
            let rest = self.typed.split_off(count);
            let now = std::mem::replace(&mut self.typed, rest);
            return link.give(Message::binary(now));
        }
        if self.asked.elapsed() >= ASK {
            self.asked = Instant::now();
            link.give(Message::Ping(Bytes::new()));
        }
    }

    /// When the next thing is due by itself.
    fn alarm(&self) -> Instant {
        let mut alarm = match &self.way {
            Way::Open { link, heard } if link.idle() => (self.asked + ASK).min(*heard + SILENT),
            Way::Open { heard, .. } => *heard + SILENT,
            Way::Lost { since, told: false, .. } => *since + BLINK,
            Way::Lost { .. } => Instant::now() + ASK,
        };
        if self.watch.holds() {
            alarm = alarm.min(self.held_since + HOLD);
        }
        let settled = self.foreign.map(|since| since + SETTLED);
        [self.redraw, settled].into_iter().flatten().fold(alarm, Instant::min)
    }

    fn rung(&mut self) {
        let now = Instant::now();
        if self.watch.holds() && self.held_since.elapsed() >= HOLD {
            self.watch.release(&mut self.typed);
        }
        match &mut self.way {
            // Who draws slowly has not been left by the server.
            Way::Open { .. } if !self.drawing.is_empty() => self.way.hear(),
            Way::Open { heard, .. } if heard.elapsed() >= SILENT => self.lost(),
            Way::Open { link, .. } if self.redraw.is_some_and(|at| at <= now) => {
                // Not between two keys: one could get lost with the connection.
                let still = link.idle() && self.typed.is_empty() && self.typed_at + STILL <= now;
                if still { self.lost() } else { self.redraw = Some(now + STILL) }
            }
            Way::Lost { since, told, .. } if !*told && since.elapsed() >= BLINK => {
                *told = true;
                // What is typed while nothing answers is not meant for whatever is there later.
                self.typed.clear();
                self.say("isolet: the connection is lost; trying again (Ctrl-C leaves)");
                self.redraw = None;
                // The try that waits would go on at a byte, and leave the line where it is.
                let back = self.place.back(tty::size());
                self.way.again(&self.server, back);
            }
            _ => self.compare(now),
        }
    }

    /// Says once that the terminal has somebody else's size, when it is not just changing.
    fn compare(&mut self, now: Instant) {
        let window = tty::size();
        let Some((cols, rows)) = self.place.foreign(window).filter(|_| !self.compared) else {
            self.foreign = None;
            return;
        };
        if *self.foreign.get_or_insert(now) + SETTLED <= now {
            self.compared = true;
            let yours = if self.view { "" } else { "; typing makes it yours" };
            self.say(&format!(
                "isolet: this terminal is {cols}x{rows}, your window {}x{}{yours}",
                window.0, window.1
            ));
        }
    }

    /// What was typed; true when it says to leave.
    fn keys(&mut self, input: &[u8]) -> bool {
        let (mut typed, held) = (Vec::new(), self.watch.holds());
        if self.watch.read(input, &mut typed) {
            // What was typed before is still meant for the program.
            self.typed.append(&mut typed);
            return true;
        }
        if self.watch.holds() && !held {
            self.held_since = Instant::now();
        }
        if self.view || matches!(self.way, Way::Lost { told: true, .. }) {
            return self.break_off.read(&typed, &mut Vec::new());
        }
        self.typed.append(&mut typed);
        self.typed_at = Instant::now();
        false
    }

    /// Something came, or another try is over.
    fn take(&mut self, came: Turn) -> Option<End> {
        match came {
            Turn::Sent | Turn::Came(Came::Sign) => {}
            Turn::Came(Came::Bytes(bytes)) => self.drawing = self.place.bytes(bytes),
            Turn::Came(Came::Said(said)) => return self.said(&said),
            Turn::Came(Came::Lost(_)) => self.lost(),
            Turn::Opened(opened) => return self.opened(*opened),
        }
        None
    }

    /// A try is over.
    fn opened(&mut self, opened: Result<(Link, Value)>) -> Option<End> {
        match opened {
            Ok((link, attached)) => {
                self.place.attached(&attached);
                self.ready = false;
                self.way = Way::open(link);
            }
            Err(error) => {
                if let Some(gone) = error.downcast_ref::<Gone>() {
                    return Some(End::Gone(gone.to_string()));
                }
                if error.downcast_ref::<Refused>().is_some_and(|refused| !refused.passes()) {
                    return Some(End::Gone(format!("{error:#}")));
                }
                let back = self.place.back(tty::size());
                self.way.again(&self.server, back);
            }
        }
        None
    }

    fn said(&mut self, said: &Value) -> Option<End> {
        match said["type"].as_str().unwrap_or_default() {
            "exit" => {
                let code = said["code"].as_i64().unwrap_or(1);
                return Some(End::Exit(code, said["signal"].as_str().map(plain)));
            }
            "ready" => {
                self.ready = true;
                if let Some(text) = self.later.take() {
                    self.say(&text);
                }
            }
            "error" => {
                let why = plain(said["message"].as_str().unwrap_or_default());
                self.say(&format!("isolet: {why}"));
            }
            _ => {
                self.place.said(said);
                if self.place.views() && !std::mem::replace(&mut self.view, true) {
                    self.say_view(MAY_LOOK);
                }
                self.compare(Instant::now());
            }
        }
        None
    }

    /// The connection is no more, or is given up for a new one.
    fn lost(&mut self) {
        (self.redraw, self.foreign) = (None, None);
        self.way = Way::lost(&self.server, self.place.back(tty::size()));
    }
}

/// Draws a part. What is dropped in the middle is not lost: it stays in `drawing`.
async fn draw(stdout: &mut Stdout, drawing: &mut Bytes) -> std::io::Result<()> {
    let count = stdout.write(drawing).await?;
    drawing.advance(count);
    if drawing.is_empty() { stdout.flush().await } else { Ok(()) }
}
