//! A registry as a node sees it: on a loopback address of the node, because a registry without TLS is
//! contacted on this machine only. Requests are recorded.

use crate::namespace::NetworkNamespace;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How often a relay that ends looks for its end.
const LOOK: Duration = Duration::from_millis(20);

/// The way of one node to a registry. It ends when it is dropped.
#[derive(Debug)]
pub struct RegistryRelay {
    asked: Arc<Mutex<Vec<String>>>,
    ended: Arc<AtomicBool>,
    accepting: Option<thread::JoinHandle<()>>,
}

impl RegistryRelay {
    /// Listens on a port of 127.0.0.1 in the namespace of a node. `registry` is an address in the
    /// namespace of this thread.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    pub fn start(node: &NetworkNamespace, port: u16, registry: SocketAddr) -> Self {
        let listener = thread::scope(|scope| {
            let bind = || {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(node.as_fd(), network).expect("root");
                TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("a port")
            };
            scope.spawn(bind).join().expect("it listens")
        });
        listener.set_nonblocking(true).expect("a listener");
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let ended = Arc::<AtomicBool>::default();
        let accepting = {
            let asked = Arc::clone(&asked);
            let ended = Arc::clone(&ended);
            thread::spawn(move || {
                while !ended.load(Ordering::SeqCst) {
                    match listener.accept() {
                        Ok((client, _)) => connect(client, registry, Arc::clone(&asked)),
                        Err(_) => thread::park_timeout(LOOK),
                    }
                }
            })
        };
        Self { asked, ended, accepting: Some(accepting) }
    }

    /// Takes the paths that were requested since the last call.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for RegistryRelay {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn connect(mut client: TcpStream, to: SocketAddr, asked: Arc<Mutex<Vec<String>>>) {
    let _ = client.set_nonblocking(false);
    thread::spawn(move || {
        let Ok(mut server) = TcpStream::connect(to) else { return };
        let (Ok(mut from), Ok(mut back)) = (server.try_clone(), client.try_clone()) else { return };
        let answering = thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut back);
            let _ = back.shutdown(Shutdown::Write);
        });
        // Requests to read have no body, so each line that begins so is a request.
        let mut line = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            for byte in &buffer[..count] {
                if *byte != b'\n' {
                    line.push(*byte);
                    continue;
                }
                let text = String::from_utf8_lossy(&line).into_owned();
                if let Some(path) =
                    text.strip_prefix("GET ").and_then(|rest| rest.split(' ').next())
                {
                    asked.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_owned());
                }
                line.clear();
            }
            if server.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Write);
        let _ = answering.join();
    });
}
