//! A host of the internet: it tells each connection from which address it came.

use crate::addresses::PUBLIC;
use std::io::Write as _;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A running host. It ends when it is dropped.
#[derive(Debug)]
pub struct PublicHost {
    ended: Arc<AtomicBool>,
    serving: Option<thread::JoinHandle<()>>,
}

impl PublicHost {
    /// The port that it listens on.
    pub const PORT: u16 = 8000;

    /// Starts the host in the clients' namespace, which must be that of this thread.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind((PUBLIC, Self::PORT)).expect("its address");
        listener.set_nonblocking(true).expect("a listener");
        let ended = Arc::<AtomicBool>::default();
        let own = Arc::clone(&ended);
        let serving = thread::spawn(move || {
            while !own.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok((mut stream, from)) => {
                        let _ = writeln!(stream, "{}", from.ip());
                    }
                    Err(_) => thread::park_timeout(Duration::from_millis(20)),
                }
            }
        });
        Self { ended, serving: Some(serving) }
    }
}

impl Drop for PublicHost {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}
