//! Copies TCP connections to another address, with or without a delay.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The number of pieces of 64 KiB that are on their way in one direction of a connection.
const PIECES_MAX: usize = 64;
/// The size of a piece, in bytes.
const PIECE_BYTES: usize = 64 * 1024;
/// How often a relay that ends looks for its end.
const LOOK: Duration = Duration::from_millis(20);

/// A running relay. Its connections end when it is dropped.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Option<thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    ended: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Relay {
    /// Copies each connection of `listener` to `to`. The calling thread's network namespace connects.
    /// Each byte arrives `delay` later, in both directions.
    ///
    /// # Panics
    /// When the listener has no address.
    #[must_use]
    pub fn start(listener: TcpListener, to: SocketAddr, delay: Duration) -> Self {
        let address = listener.local_addr().expect("a bound listener");
        listener.set_nonblocking(true).expect("a listener");
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        let accepting = thread::spawn(move || {
            while !own.ended.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok((client, _)) => connect(client, to, delay, &own),
                    Err(_) => thread::park_timeout(LOOK),
                }
            }
        });
        Self { shared, address, accepting: Some(accepting) }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        let open = self.shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

fn connect(client: TcpStream, to: SocketAddr, delay: Duration, shared: &Arc<Shared>) {
    let _ = client.set_nonblocking(false);
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let Ok(server) = TcpStream::connect_timeout(&to, Duration::from_secs(5)) else { return };
        let ends = [&client, &server].map(|end| {
            let _ = end.set_nodelay(true);
            end.try_clone()
        });
        let [Ok(client_copy), Ok(server_copy)] = ends else { return };
        {
            let mut open = shared.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.retain(|stream| stream.peer_addr().is_ok());
            open.extend([&client, &server].into_iter().filter_map(|end| end.try_clone().ok()));
        }
        let back = thread::spawn(move || copy(server_copy, client_copy, delay));
        copy(client, server, delay);
        let _ = back.join();
    });
}

/// Copies until one side ends, then ends the other direction of the other side.
fn copy(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    if delay.is_zero() {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
        return;
    }
    let (sender, pieces) = sync_channel::<(Instant, Vec<u8>)>(PIECES_MAX);
    let writing = thread::spawn(move || {
        for (due, piece) in pieces {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
    let mut buffer = vec![0; PIECE_BYTES];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if sender.send((Instant::now() + delay, buffer[..count].to_vec())).is_err() {
            break;
        }
    }
    drop(sender);
    let _ = writing.join();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_arrives_later_and_the_end_arrives_too() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = server.local_addr().expect("bound");
        let delay = Duration::from_millis(60);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let relay = Relay::start(listener, to, delay);
        let begun = Instant::now();
        let mut client = TcpStream::connect(relay.address()).expect("it accepts");
        client.write_all(b"abc").expect("sent");
        client.shutdown(Shutdown::Write).expect("open");
        let (mut accepted, _) = server.accept().expect("connected");
        let mut text = String::new();
        accepted.read_to_string(&mut text).expect("text");
        assert_eq!(text, "abc");
        assert!(begun.elapsed() >= delay);
        drop(accepted);
        assert_eq!(client.read(&mut [0]).expect("an end"), 0);
    }
}
