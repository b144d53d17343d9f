//! A connection between a node and etcd, with faults.
//!
//! | fault | etcd hears the node | the node hears etcd |
//! |---|---|---|
//! | [`EtcdWire::cut`] | no: connections end, and new ones are refused | no |
//! | [`EtcdWire::deafen`] | yes | nothing: connections stay open, and answers disappear |
//! | [`EtcdWire::silence_watches`] with [`Silence::Complete`] | yes | all answers, and nothing from the watches that are open now |
//! | [`EtcdWire::silence_watches`] with [`Silence::Changes`] | yes | all answers, and no change from the watches that are open now; they still report progress |
//!
//! [`EtcdWire::mend`] ends a cut and deafness. A watch that was silenced stays so; the ones that the
//! node opens later work. The connections are HTTP/2 without TLS.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What a silent watch still reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// Nothing.
    Complete,
    /// Its progress, and no change.
    Changes,
}

/// Passes connections on to etcd.
pub struct EtcdWire {
    /// The port to connect to.
    pub port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    is_cut: bool,
    is_deaf: bool,
    next: u64,
    open: HashMap<u64, Open>,
}

/// An open connection.
struct Open {
    ends: [TcpStream; 2],
    /// HTTP/2 streams that are watches.
    watches: HashSet<u32>,
    silent: HashMap<u32, Silence>,
    /// Whether answers have disappeared, so that it cannot be used any more.
    has_lost: bool,
}

/// The type of HTTP/2 frames with data.
const DATA: u8 = 0;
/// What a client sends before its first frame.
const PREFACE: usize = 24;

impl EtcdWire {
    /// Listens, and connects to a port of the loopback interface.
    ///
    /// # Panics
    /// When no port can be opened.
    #[must_use]
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let state = Arc::new(Mutex::new(State::default()));
        let own = Arc::clone(&state);
        // It ends with the process of the test.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                accept(&own, client, target);
            }
        });
        Self { port, state }
    }

    /// The URL for a client of etcd.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Ends all connections, and accepts no more.
    pub fn cut(&self) {
        let mut state = lock(&self.state);
        state.is_cut = true;
        state.open.values().for_each(Open::end);
    }

    /// From now on, etcd hears the node, and the node hears nothing.
    pub fn deafen(&self) {
        lock(&self.state).is_deaf = true;
    }

    /// Passes everything on again.
    pub fn mend(&self) {
        let mut state = lock(&self.state);
        state.is_cut = false;
        state.is_deaf = false;
        state.open.values().filter(|open| open.has_lost).for_each(Open::end);
    }

    /// Silences the watches that are open now. Returns their number.
    pub fn silence_watches(&self, silence: Silence) -> usize {
        let mut state = lock(&self.state);
        let mut count = 0;
        for open in state.open.values_mut() {
            count += open.watches.len();
            open.silent.extend(open.watches.iter().map(|watch| (*watch, silence)));
        }
        count
    }
}

impl Drop for EtcdWire {
    fn drop(&mut self) {
        self.cut();
    }
}

impl Open {
    fn end(&self) {
        for end in &self.ends {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(shared: &Arc<Mutex<State>>, client: TcpStream, target: u16) {
    let mut state = lock(shared);
    if state.is_cut {
        let _ = client.shutdown(Shutdown::Both);
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { return };
    let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
    state.next += 1;
    let id = state.next;
    let open = Open {
        ends: [clone(&client), clone(&server)],
        watches: HashSet::new(),
        silent: HashMap::new(),
        has_lost: false,
    };
    state.open.insert(id, open);
    drop(state);
    let requests = (clone(&client), clone(&server), Arc::clone(shared));
    thread::spawn(move || {
        let (from, to, shared) = requests;
        pass_requests(from, &to, &shared, id);
        let _ = to.shutdown(Shutdown::Both);
    });
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        pass_answers(server, &client, &shared, id);
        let _ = client.shutdown(Shutdown::Both);
        lock(&shared).open.remove(&id);
    });
}

/// Passes on what the node sends, and notes which streams are watches.
fn pass_requests(mut from: TcpStream, mut to: &TcpStream, shared: &Mutex<State>, id: u64) {
    let mut preface = [0; PREFACE];
    if from.read_exact(&mut preface).is_err() || to.write_all(&preface).is_err() {
        return;
    }
    while let Some(frame) = Frame::read(&mut from) {
        if frame.kind() == DATA
            && creates_watch(frame.data())
            && let Some(open) = lock(shared).open.get_mut(&id)
        {
            open.watches.insert(frame.stream());
        }
        if to.write_all(&frame.0).is_err() {
            return;
        }
    }
}

/// Passes on what etcd sends, except what a fault takes.
fn pass_answers(mut from: TcpStream, mut to: &TcpStream, shared: &Mutex<State>, id: u64) {
    while let Some(frame) = Frame::read(&mut from) {
        let is_passed = {
            let mut state = lock(shared);
            let is_deaf = state.is_deaf;
            let Some(open) = state.open.get_mut(&id) else { return };
            open.has_lost |= is_deaf;
            let is_silent = match open.silent.get(&frame.stream()) {
                Some(Silence::Complete) => frame.kind() == DATA,
                Some(Silence::Changes) => frame.kind() == DATA && has_changes(frame.data()),
                None => false,
            };
            !is_deaf && !is_silent
        };
        if is_passed && to.write_all(&frame.0).is_err() {
            return;
        }
    }
}

/// A frame of HTTP/2, with its head.
struct Frame(Vec<u8>);

impl Frame {
    const HEAD: usize = 9;

    fn read(from: &mut impl Read) -> Option<Self> {
        let mut frame = vec![0; Self::HEAD];
        from.read_exact(&mut frame).ok()?;
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]) as usize;
        frame.resize(Self::HEAD + length, 0);
        from.read_exact(&mut frame[Self::HEAD..]).ok()?;
        Some(Self(frame))
    }

    fn kind(&self) -> u8 {
        self.0[3]
    }

    fn stream(&self) -> u32 {
        u32::from_be_bytes([self.0[5] & 0x7F, self.0[6], self.0[7], self.0[8]])
    }

    /// The message behind the five bytes with which gRPC begins each. A message that spans frames is
    /// cut, which is enough to tell its kind.
    fn data(&self) -> &[u8] {
        self.0.get(Self::HEAD + 5..).unwrap_or_default()
    }
}

/// Whether a message begins a watch: its first field is a message whose first field is the key. In
/// all other requests of etcd with such a first field, it is the key itself.
fn creates_watch(message: &[u8]) -> bool {
    let fields = fields(message);
    fields.first().is_some_and(|(field, content)| {
        *field == 1
            && self::fields(content).first().is_some_and(|(field, _)| *field == 1)
            && content.first() == Some(&0x0A)
    })
}

/// Whether an answer of a watch has changes: field 11.
fn has_changes(message: &[u8]) -> bool {
    fields(message).iter().any(|(field, _)| *field == 11)
}

/// The fields of a message in the encoding of protocol buffers: their numbers, and the content of
/// those that have bytes.
fn fields(mut message: &[u8]) -> Vec<(u64, &[u8])> {
    let mut found = Vec::new();
    while let Some(tag) = number(&mut message) {
        let content: &[u8] = match tag & 7 {
            0 if number(&mut message).is_some() => &[],
            2 => {
                let length = number(&mut message).unwrap_or_default();
                let length = usize::try_from(length).unwrap_or(usize::MAX).min(message.len());
                let (content, rest) = message.split_at(length);
                message = rest;
                content
            }
            _ => return found,
        };
        found.push((tag >> 3, content));
    }
    found
}

fn number(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(first & 0x7F) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_request_that_creates_a_watch_is_one() {
        let key = [0x0A, 3, b'i', b's', b'o'];
        let create = [&[0x0A, 5], key.as_slice()].concat();
        assert!(creates_watch(&create));
        assert!(!creates_watch(&key), "a request for a key");
        assert!(!creates_watch(&[0x1A, 0]), "a question for progress");
        assert!(!creates_watch(&[0x08, 1]), "a renewal");
        assert!(has_changes(&[0x0A, 2, 8, 1, 0x5A, 0]));
        assert!(!has_changes(&[0x0A, 2, 8, 1, 0x10, 1]));
    }
}
