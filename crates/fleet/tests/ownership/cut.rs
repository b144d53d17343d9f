//! A connection to etcd that a test can cut.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Passes connections on to a port, unless it is cut.
pub(crate) struct Wire {
    /// The port to connect to.
    pub(crate) port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_cut: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Wire {
    pub(crate) fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let own = Arc::clone(&state);
        // It ends with the process of the test.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                own.pass_on(&client, target);
            }
        });
        Self { port, state }
    }

    /// Ends all connections, and accepts no more.
    pub(crate) fn cut(&self) {
        self.state.is_cut.store(true, Ordering::SeqCst);
        for stream in self.state.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Accepts connections again.
    pub(crate) fn mend(&self) {
        self.state.is_cut.store(false, Ordering::SeqCst);
    }
}

impl State {
    fn pass_on(&self, client: &TcpStream, target: u16) {
        let mut open = self.open.lock().unwrap();
        if self.is_cut.load(Ordering::SeqCst) {
            let _ = client.shutdown(Shutdown::Both);
            return;
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { return };
        let both = [(client, &server), (&server, client)];
        for (from, to) in both {
            let mut from = from.try_clone().unwrap();
            let mut to = to.try_clone().unwrap();
            open.push(from.try_clone().unwrap());
            thread::spawn(move || {
                let mut buffer = [0; 16 * 1024];
                while let Ok(count) = from.read(&mut buffer) {
                    if count == 0 || to.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    }
}
