//! nginx as a reverse proxy in a sandbox's network, as a well-known proxy to compare with.

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest wait until the server listens.
const LISTEN_WAIT: Duration = Duration::from_secs(10);

/// A running nginx, which ends when it is dropped.
pub(crate) struct Nginx {
    process: Child,
    folder: PathBuf,
}

impl Nginx {
    /// Listens on one port and forwards to the other over keep-alive connections. `None` if this
    /// machine has no nginx.
    pub(crate) fn start(network: &str, port: u16, asked: u16) -> Result<Option<Self>> {
        if Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_err() {
            return Ok(None);
        }
        let folder =
            std::env::temp_dir().join(format!("isolet-bench-nginx-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let config = folder.join("nginx.conf");
        std::fs::write(&config, said(&folder.display().to_string(), port, asked))?;
        let process = Command::new("nsenter")
            .arg(format!("--net={network}"))
            .args(["nginx", "-c"])
            .arg(&config)
            .stdin(Stdio::null())
            .spawn()?;
        let nginx = Self { process, folder };
        let until = Instant::now() + LISTEN_WAIT;
        while !nginx.folder.join("pid").is_file() {
            if Instant::now() > until {
                bail!("nginx does not begin");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Some(nginx))
    }
}

/// The configuration: one process, keep-alive on both sides, unbuffered bodies.
fn said(folder: &str, port: u16, asked: u16) -> String {
    format!(
        "worker_processes 1; daemon off; master_process off;
        pid {folder}/pid; error_log {folder}/errors;
        events {{ worker_connections 64; }}
        http {{
            access_log off; keepalive_requests 1000000; proxy_temp_path {folder}/proxy;
            upstream guest {{
                server 127.0.0.1:{asked}; keepalive 8; keepalive_requests 1000000;
            }}
            server {{
                listen 127.0.0.1:{port};
                location / {{
                    proxy_pass http://guest; proxy_http_version 1.1;
                    proxy_set_header Connection \"\";
                    proxy_buffering off; proxy_buffer_size 64k;
                    proxy_buffers 8 64k; proxy_busy_buffers_size 128k;
                }}
            }}
        }}
        "
    )
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.process.id() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
