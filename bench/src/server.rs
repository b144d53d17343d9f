//! The server that a table measures.

use anyhow::{Context, Result, bail};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where a server listens, and a key for it.
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
}

/// A running server on loopback. It ends with all its sandboxes when it is dropped.
pub(crate) struct BenchServer {
    process: Child,
    data: PathBuf,
    pub(crate) port: u16,
    pub(crate) key: String,
}

impl BenchServer {
    pub(crate) fn start(bin: &Path) -> Result<Self> {
        Self::start_with(bin, &[])
    }

    /// Starts a server with these environment variables.
    pub(crate) fn start_with(bin: &Path, env: &[(&str, &str)]) -> Result<Self> {
        Self::start_in(bin, &std::env::temp_dir(), env)
    }

    /// Starts a server whose data directory is in this directory.
    pub(crate) fn start_in(bin: &Path, folder: &Path, env: &[(&str, &str)]) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let data = folder.join(format!("isolet-bench-{port}"));
        std::fs::create_dir_all(&data)?;
        let key = format!("bench-{port}-{}-key-of-this-run", std::process::id());
        let process = Command::new(bin.join("isolet"))
            .arg("serve")
            .env("ISOLET_LISTEN", format!("127.0.0.1:{port}"))
            .env("ISOLET_DATA_DIR", &data)
            .env("ISOLET_API_KEY", &key)
            .env("RUST_LOG", "error")
            .envs(env.iter().map(|(name, value)| (variable(bin, name), value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("{}: run `make build` first", bin.join("isolet").display()))?;
        let server = Self { process, data, port, key };
        let until = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > until {
                bail!("the server does not listen after 60 s");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint { address: (Ipv4Addr::LOCALHOST, self.port).into(), key: self.key.clone() }
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }
}

/// The name of a variable for the programs in `bin`. Versions that have `isolet-edge` use the earlier name
/// of the warm pool's size.
fn variable<'a>(bin: &Path, name: &'a str) -> &'a str {
    if name == "ISOLET_WARM_POOL_SIZE" && bin.join("isolet-edge").try_exists().unwrap_or(false) {
        return "ISOLET_READY";
    }
    name
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        // Sandboxes outlive a server, so they must be deleted first.
        if let Ok(mut client) = crate::http::HttpClient::connect(self) {
            while let Ok(ids) = client.list() {
                if ids.is_empty() || ids.iter().all(|id| client.delete(id).is_err()) {
                    break;
                }
            }
        }
        if let Some(pid) = rustix::process::Pid::from_raw(self.process.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.data);
    }
}
