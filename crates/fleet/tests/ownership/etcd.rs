//! A real etcd with one member, in a temporary directory.

use isolet_kit::{SOON, wait_until};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use tempfile::TempDir;

/// Where `make test` unpacks Debian's packages.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/clients/etcd/usr/bin");

/// A running etcd. It ends when it is dropped.
pub(crate) struct EtcdServer {
    folder: TempDir,
    /// The port for clients.
    pub(crate) port: u16,
    /// The URL for other members.
    peer: String,
    process: Child,
}

impl EtcdServer {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [port, peer] = [free_port(), free_port()].map(|port| (port, url(port)));
        let process = launch(folder.path(), &port.1, &peer.1);
        wait_until("etcd listens", SOON, || TcpStream::connect(("127.0.0.1", port.0)).ok());
        Self { folder, port: port.0, peer: peer.1, process }
    }

    /// Copies the data, with an interruption.
    pub(crate) fn back_up(&mut self) {
        self.kill();
        self.copy_data("data", "backup");
        self.relaunch();
    }

    /// Continues with the copy of the data.
    pub(crate) fn restore(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.folder.path().join("data")).unwrap();
        self.copy_data("backup", "data");
        self.relaunch();
    }

    fn copy_data(&self, from: &str, to: &str) {
        let [from, to] = [from, to].map(|name| self.folder.path().join(name));
        let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
        assert!(copied.success());
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    fn relaunch(&mut self) {
        self.process = launch(self.folder.path(), &self.url(), &self.peer);
        wait_until("etcd listens", SOON, || TcpStream::connect(("127.0.0.1", self.port)).ok());
    }

    /// The URL for clients.
    pub(crate) fn url(&self) -> String {
        url(self.port)
    }
}

fn launch(folder: &Path, url: &str, peer: &str) -> Child {
    Command::new(program("etcd"))
        .args(["--name", "one", "--data-dir"])
        .arg(folder.join("data"))
        .args(["--listen-client-urls", url, "--advertise-client-urls", url])
        .args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer])
        .args(["--initial-cluster", &format!("one={peer}"), "--log-level", "error"])
        .args(["--heartbeat-interval", "20", "--election-timeout", "200", "--unsafe-no-fsync"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(folder.join("log")).unwrap())
        .spawn()
        .unwrap()
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.path().join("log"));
            eprintln!("log of etcd: {}", log.unwrap_or_default());
        }
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// A port that is free at the moment. It lies below the range from which the kernel takes those of
/// clients, so that no connection uses it before its server.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // The tests that run at the same time are other processes.
    let first = u16::try_from(std::process::id() % 125).unwrap() * 8;
    let next = || 11_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 1000;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    std::iter::repeat_with(next).take(1000).find(is_free).expect("a free port")
}

/// A program of Debian's packages `etcd-server` and `etcd-client`, unpacked or installed.
fn program(name: &str) -> PathBuf {
    let unpacked = Path::new(PROGRAMS).join(name);
    if unpacked.is_file() { unpacked } else { Path::new("/usr/bin").join(name) }
}
