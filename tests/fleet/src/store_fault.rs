//! Errors of the object store, as one node sees them.

use crate::addresses::{CLIENTS, STORE, STORE_PORT};
use crate::namespace::NetworkNamespace;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The table of the packet filter.
const TABLE: &str = "ip store_fault";
/// The pause between two looks for connections.
const LOOK: Duration = Duration::from_millis(10);
/// How long a client may take to send a request.
const READ_MAX: Duration = Duration::from_secs(5);
/// What every request is answered with.
const ANSWER: &[u8] = b"HTTP/1.1 500 Internal Server Error\r\ncontent-type: application/xml\r\n\
    content-length: 41\r\nconnection: close\r\n\r\n<Error><Code>InternalError</Code></Error>";

/// How the object store fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreFailure {
    /// It refuses connections.
    Refuses,
    /// It does not answer: packets vanish.
    Silent,
    /// It answers every request with the status 500.
    Errors,
}

impl StoreFailure {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Refuses, Self::Silent, Self::Errors];
}

/// A failure of the object store for one node. Open connections end. It ends when it is dropped.
#[derive(Debug)]
pub struct StoreFault<'a> {
    node: &'a NetworkNamespace,
    _answers: Option<ErrorServer>,
}

impl<'a> StoreFault<'a> {
    /// Lets the object store fail for a node. Call it in the clients' namespace.
    ///
    /// # Panics
    /// When a part cannot be created.
    #[must_use]
    pub fn new(node: &'a NetworkNamespace, failure: StoreFailure) -> Self {
        let answers = (failure == StoreFailure::Errors).then(ErrorServer::start);
        let verdict = match failure {
            StoreFailure::Silent => "drop",
            StoreFailure::Refuses | StoreFailure::Errors => "reject with tcp reset",
        };
        let redirect = answers.as_ref().map(|server| {
            format!(
                "chain to_server {{\ntype nat hook output priority -100;\n\
                 ip daddr {STORE} tcp dport {STORE_PORT} dnat to {}\n}}\n",
                server.address
            )
        });
        // A redirected connection has another address when it reaches the filter.
        node.nft(&format!(
            "table {TABLE} {{\n{}chain verdict_of_all {{\ntype filter hook output priority 0;\n\
             ip daddr {STORE} tcp dport {STORE_PORT} {verdict}\n}}\n}}\n",
            redirect.unwrap_or_default()
        ));
        Self { node, _answers: answers }
    }
}

impl Drop for StoreFault<'_> {
    fn drop(&mut self) {
        let mut delete = self.node.command("nft");
        let _ = delete.args(["delete", "table"]).args(TABLE.split(' ')).output();
    }
}

/// An HTTP server that only knows the status 500.
#[derive(Debug)]
struct ErrorServer {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    serving: Option<JoinHandle<()>>,
}

impl ErrorServer {
    fn start() -> Self {
        let listener = TcpListener::bind((CLIENTS, 0)).expect("a port of the clients");
        let address = listener.local_addr().expect("a bound listener");
        listener.set_nonblocking(true).expect("a listener");
        let ended = Arc::<AtomicBool>::default();
        let own = Arc::clone(&ended);
        let serving = thread::spawn(move || {
            while !own.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok((client, _)) => drop(thread::spawn(move || answer(client))),
                    Err(_) => thread::park_timeout(LOOK),
                }
            }
        });
        Self { address, ended, serving: Some(serving) }
    }
}

impl Drop for ErrorServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}

/// Reads a request with its body, and answers.
fn answer(client: TcpStream) -> std::io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_read_timeout(Some(READ_MAX))?;
    let mut request = BufReader::new(client);
    let mut length = 0;
    loop {
        let mut line = String::new();
        request.read_line(&mut line)?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(text) = line.strip_prefix("content-length:") {
            length = text.trim().parse().unwrap_or(0);
        }
    }
    std::io::copy(&mut request.by_ref().take(length), &mut std::io::sink())?;
    request.get_mut().write_all(ANSWER)
}
