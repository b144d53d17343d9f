//! A free port for a program that will listen.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Below the range from which the kernel takes ports for clients.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Finds a port that is currently free, and that this process has not found before. The kernel gives
/// it to no client: one that got the port would keep a program from listening there, and one that
/// connects to a port where nothing listens yet may even connect to itself.
///
/// # Panics
/// When no port is free.
#[must_use]
pub fn free_port() -> u16 {
    static FOUND: Mutex<Vec<u16>> = Mutex::new(Vec::new());
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let first =
        PORTS.start + u16::try_from(std::process::id().wrapping_mul(131) % 12_000).unwrap_or(0);
    let ports = (first..PORTS.end).chain(PORTS.start..first);
    let mut ports = ports.step_by(7).filter(|port| !found.contains(port));
    let port = ports
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("a free port below the kernel's range");
    found.push(port);
    port
}
