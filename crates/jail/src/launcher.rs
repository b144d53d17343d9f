//! The server's side of the launcher: starts it and sends it one request at a time.

use crate::config::Config;
use crate::kernel::packet::send_packet;
use isolet_wire::launcher::{
    LauncherRequest, LauncherResponse, PACKET_BYTES_MAX, Scope, Spec, encode,
};
use isolet_wire::version::VERSION;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, shutdown,
    socketpair, sockopt,
};
use std::fmt::Display;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The most seconds that one request may take. Creating a sandbox takes milliseconds, longer under
/// load.
const REPLY_S_MAX: u64 = 30;

/// How long a launcher may take to end, in ms. It only removes empty control groups.
const SHUTDOWN_MS_MAX: u32 = 500;

/// Why the launcher did not create a sandbox or start a scope.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The launcher has died, or never started. Start another one, and remove a partly created
    /// sandbox with [`crate::SandboxHandle::remove`].
    #[error("the launcher is gone: {0}")]
    Gone(String),
    /// This machine cannot create sandboxes.
    #[error("this machine lacks: {}", .0.join("; "))]
    Missing(Vec<String>),
    /// A step failed; nothing of the sandbox, or of the scope, is left.
    #[error("cannot create sandbox {name}: {step}: {errno}")]
    Failed {
        /// The server's own name of the sandbox.
        name: String,
        /// The name of the step, for people.
        step: String,
        /// The error of the system call that failed.
        errno: Errno,
    },
    /// A granted path of a scope was refused; nothing of the scope is left.
    #[error("cannot start a scope in sandbox {name}: grant {index}: {errno}")]
    GrantRefused {
        /// The server's own name of the sandbox.
        name: String,
        /// The index of the grant in the request.
        index: usize,
        /// Why the launcher could not open the path.
        errno: Errno,
    },
}

/// A running launcher. Ends when it is dropped.
#[derive(Debug)]
pub struct Launcher {
    socket: OwnedFd,
    process: Child,
    unmapped_files: Option<Errno>,
}

impl Launcher {
    /// Starts the launcher and waits until it has prepared everything.
    ///
    /// # Errors
    /// [`Error::Missing`] with one sentence for each missing thing, [`Error::Gone`] when it cannot
    /// start.
    pub fn start(config: &Config) -> Result<Self, Error> {
        let gone = |error: &dyn Display| Error::Gone(error.to_string());
        let (socket, launcher_socket) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|error| gone(&error))?;
        let wait = Some(Duration::from_secs(REPLY_S_MAX));
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, wait)
            .map_err(|error| gone(&error))?;
        let process = Command::new(&config.launcher)
            .arg("--data")
            .arg(&config.data_dir)
            .arg("--agent")
            .arg(&config.agent)
            .args(["--uid-base", &config.uid_base.to_string(), "--cgroup", &config.cgroup])
            .args(["--stall-ms", &config.stall_ms.to_string()])
            .env_clear()
            .stdin(Stdio::from(launcher_socket))
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| gone(&format!("{}: {error}", config.launcher.display())))?;
        let mut launcher = Self { socket, process, unmapped_files: None };
        match launcher.receive_report()? {
            LauncherResponse::Hello { version: VERSION } => {}
            LauncherResponse::Hello { version } => {
                return Err(Error::Missing(vec![other_release(&config.launcher, version)]));
            }
            _ => return Err(unexpected_response()),
        }
        match launcher.receive_report()? {
            LauncherResponse::Ready { missing, files_unmapped } if missing.is_empty() => {
                launcher.unmapped_files = files_unmapped.map(Errno::from_raw_os_error);
                Ok(launcher)
            }
            LauncherResponse::Ready { missing, .. } => Err(Error::Missing(missing)),
            _ => Err(unexpected_response()),
        }
    }

    /// Why the file system of the data directory cannot show files under other ids; `None` when it
    /// can.
    #[must_use]
    pub fn unmapped_files(&self) -> Option<Errno> {
        self.unmapped_files
    }

    /// The process id of the launcher.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Creates a sandbox; blocks for some milliseconds. Returns the agent's process id. The sandbox
    /// is created in the network namespace `network`, or in a new one that has only loopback.
    ///
    /// # Errors
    /// [`Error::Failed`] when a step failed, [`Error::Gone`] when the launcher died.
    pub fn launch(&mut self, spec: &Spec, network: Option<BorrowedFd<'_>>) -> Result<i32, Error> {
        let spec = Spec { has_veth: network.is_some(), ..spec.clone() };
        let name = spec.name.clone();
        self.request(&LauncherRequest::Launch(spec), network, &name, || {})
    }

    /// Creates the directory of a sandbox, and starts nothing. Blocks for some milliseconds.
    ///
    /// # Errors
    /// As [`Launcher::launch`].
    pub fn create_files(&mut self, spec: &Spec) -> Result<(), Error> {
        let request = LauncherRequest::CreateFiles(spec.clone());
        self.request(&request, None, &spec.name, || {}).map(drop)
    }

    /// Starts the agent of a session's scope; blocks for some milliseconds. Calls `granted` as soon
    /// as every grant was opened.
    ///
    /// # Errors
    /// As [`Launcher::launch`], and [`Error::GrantRefused`].
    pub fn start_scope(&mut self, scope: &Scope, granted: impl FnMut()) -> Result<(), Error> {
        self.request(&LauncherRequest::Scope(scope.clone()), None, &scope.name, granted).map(drop)
    }

    fn request(
        &mut self,
        request: &LauncherRequest,
        network: Option<BorrowedFd<'_>>,
        sandbox: &str,
        mut granted: impl FnMut(),
    ) -> Result<i32, Error> {
        let packet = encode(request);
        send_packet(&self.socket, &packet, network, SendFlags::empty())
            .map_err(|error| Error::Gone(error.to_string()))?;
        loop {
            match self.receive_report()? {
                LauncherResponse::Granted { name } if name == sandbox => granted(),
                LauncherResponse::Launched { name, pid } if name == sandbox => return Ok(pid),
                LauncherResponse::Failed { name, step, errno } if name == sandbox => {
                    let errno = Errno::from_raw_os_error(errno);
                    return Err(Error::Failed { name, step, errno });
                }
                LauncherResponse::GrantRefused { name, index, errno } if name == sandbox => {
                    let errno = Errno::from_raw_os_error(errno);
                    return Err(Error::GrantRefused { name, index, errno });
                }
                _ => return Err(Error::Gone("it answered another request".into())),
            }
        }
    }

    fn receive_report(&mut self) -> Result<LauncherResponse, Error> {
        let mut packet = vec![0_u8; PACKET_BYTES_MAX];
        loop {
            match recv(&self.socket, packet.as_mut_slice(), RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Ok((_, length)) if length > 0 => {
                    return isolet_wire::frame::decode(&packet[..length])
                        .map_err(|error| Error::Gone(error.to_string()));
                }
                Ok(_) => return Err(Error::Gone("it closed the connection".into())),
                Err(error) => return Err(Error::Gone(error.to_string())),
            }
        }
    }
}

fn unexpected_response() -> Error {
    Error::Gone("it sent an unexpected response".into())
}

/// Says that the launcher and the server are of different releases.
fn other_release(program: &Path, theirs: u16) -> String {
    format!(
        "{} is of another release: it speaks protocol version {theirs}, and this server {VERSION}; \
         install both from one package, then restart the server",
        program.display()
    )
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // The launcher removes its control groups and ends when its connection is closed.
        let _ = shutdown(&self.socket, Shutdown::Both);
        for _ in 0..SHUTDOWN_MS_MAX {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
