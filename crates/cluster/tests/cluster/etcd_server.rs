//! A real etcd with one member, in a temporary directory on free ports of the loopback interface.

use isolet_cluster::etcd::Etcd;
use isolet_cluster::etcd::EtcdError;
use isolet_cluster::etcd::EtcdSettings;
use isolet_cluster::etcd::EtcdTlsFiles;
use std::net::TcpListener;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Where `make test` unpacks Debian's packages.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/clients/etcd/usr/bin");

/// A running etcd. It ends when it is dropped.
pub(crate) struct EtcdServer {
    folder: TempDir,
    ports: [u16; 2],
    tls: Option<ServerTls>,
    process: Option<Child>,
}

/// Certificates of the server, and those with which its clients are checked.
#[derive(Clone)]
pub(crate) struct ServerTls {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) ca: PathBuf,
}

impl EtcdServer {
    /// Starts etcd without TLS.
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    /// Starts etcd, and waits until its port accepts connections.
    pub(crate) async fn start_with(tls: Option<ServerTls>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Self { folder, ports: free_ports(), tls, process: None };
        server.restart().await;
        server
    }

    /// Starts etcd again on the same data.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        let peer = format!("http://127.0.0.1:{}", self.ports[1]);
        let mut command = Command::new(program("etcd"));
        command
            .args(["--name", "one", "--data-dir"])
            .arg(self.folder.path().join("data"))
            .args(["--listen-client-urls", &self.url(), "--advertise-client-urls", &self.url()])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("one={peer}"), "--log-level", "error"])
            // Leases of at least 1 s, so that tests need not wait for long ones.
            .args(["--heartbeat-interval", "20", "--election-timeout", "200"])
            .args(["--unsafe-no-fsync"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(self.folder.path().join("log")).unwrap());
        if let Some(tls) = &self.tls {
            command.arg("--client-cert-auth");
            for (name, path) in [
                ("--cert-file", &tls.certificate),
                ("--key-file", &tls.key),
                ("--trusted-ca-file", &tls.ca),
            ] {
                command.arg(name).arg(path);
            }
        }
        self.process = Some(command.spawn().unwrap());
        let address = format!("127.0.0.1:{}", self.ports[0]);
        let what = || format!("etcd to listen on {:?}: {}", self.ports, self.log());
        wait_until(what, async || TcpStream::connect(&address).await.is_ok()).await;
    }

    /// Copies the data, with an interruption.
    pub(crate) async fn back_up(&mut self) {
        self.kill();
        self.copy_data("data", "backup");
        self.restart().await;
    }

    /// Continues with the copy of the data.
    pub(crate) async fn restore(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.folder.path().join("data")).unwrap();
        self.copy_data("backup", "data");
        self.restart().await;
    }

    fn copy_data(&self, from: &str, to: &str) {
        let [from, to] = [from, to].map(|name| self.folder.path().join(name));
        let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
        assert!(copied.success());
    }

    /// Ends etcd with SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Stops etcd, or lets it continue.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// The port for clients.
    pub(crate) fn port(&self) -> u16 {
        self.ports[0]
    }

    /// The URL for clients.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.ports[0])
    }

    /// A client without TLS.
    pub(crate) fn client(&self) -> Etcd {
        self.client_with(None).unwrap()
    }

    /// A client.
    pub(crate) fn client_with(&self, tls: Option<EtcdTlsFiles>) -> Result<Etcd, EtcdError> {
        Etcd::new(EtcdSettings { endpoints: vec![self.url()], tls })
    }

    /// The number of calls of a method that etcd has begun and not ended.
    pub(crate) async fn open_calls(&self, method: &str) -> i64 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports[0])).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let count = |metric: &str| -> i64 {
            let is_it = |line: &&str| {
                line.starts_with(metric) && line.contains(&format!("grpc_method=\"{method}\""))
            };
            let value = |line: &str| line.rsplit(' ').next()?.parse::<i64>().ok();
            text.lines().filter(is_it).filter_map(value).sum()
        };
        count("grpc_server_started_total") - count("grpc_server_handled_total")
    }

    /// Runs `etcdctl`.
    pub(crate) fn etcdctl(&self, arguments: &[&str]) -> String {
        let output = Command::new(program("etcdctl"))
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.url()])
            .args(arguments)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Two ports that are free at the moment. They lie below the range from which the kernel takes those of
/// clients, so that no connection uses one before etcd does, or while it is restarted.
fn free_ports() -> [u16; 2] {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // The tests that run at the same time are other processes.
    let first = u16::try_from(std::process::id() % 125).unwrap() * 8;
    let next = || 10_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 1000;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let find = || std::iter::repeat_with(next).take(1000).find(is_free);
    [(); 2].map(|()| find().expect("a free port"))
}

/// A program of Debian's packages `etcd-server` and `etcd-client`, unpacked or installed.
fn program(name: &str) -> PathBuf {
    let unpacked = Path::new(PROGRAMS).join(name);
    if unpacked.is_file() { unpacked } else { Path::new("/usr/bin").join(name) }
}

/// Waits until a condition holds.
pub(crate) async fn wait_until(what: impl Fn() -> String, holds: impl AsyncFn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(Instant::now() < end, "waited in vain for {}", what());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
