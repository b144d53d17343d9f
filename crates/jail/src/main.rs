//! The launcher: one thread, small, root. It receives requests on its standard input (a packet
//! socket of the server), creates sandboxes, and ends with the server. Sandboxes outlive it.
//! Started as `isolet-launcher --veth` it is the process that owns the veth pairs instead, and as
//! `isolet-launcher --lease-guard` the one that stops sandboxes when the lease of a node ends.

use isolet_jail::{
    Config, Host, Packet, ScopeError, StepError, create_files, create_sandbox, lease_guard,
    missing, receive_packet, start_scope, veth,
};
use isolet_sys::{exec, inherited_fd};
use isolet_wire::launcher::{LauncherRequest, LauncherResponse, encode};
use isolet_wire::version::VERSION;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, send};
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

fn main() {
    inherited_fd::close_from(3);
    // A copy above the standard descriptors, which programs in sandboxes may inherit.
    let server = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3);
    if let Some(options) = veth_options() {
        let Ok(server) = server else { return };
        let Ok(null) = File::open("/dev/null") else { return };
        let _ = inherited_fd::dup_to(null.as_fd(), 0);
        return veth::run(options, server);
    }
    if let Some(options) = guard_options() {
        let Ok(server) = server else { return };
        let Ok(null) = File::open("/dev/null") else { return };
        let _ = inherited_fd::dup_to(null.as_fd(), 0);
        return lease_guard::run(options, server);
    }
    exec::autoreap_children();
    let Some(config) = launcher_config() else {
        eprintln!("only isolet serve starts isolet-launcher");
        std::process::exit(2);
    };
    let Ok(server) = server else { return };
    report(&server, &LauncherResponse::Hello { version: VERSION });
    match prepare(config) {
        Err(missing) => report(&server, &LauncherResponse::Ready { missing, files_unmapped: None }),
        Ok(host) => {
            let files_unmapped = host.unmapped_files.map(Errno::raw_os_error);
            report(&server, &LauncherResponse::Ready { missing: Vec::new(), files_unmapped });
            serve(&host, &server);
            host.cgroup_root.remove_if_empty();
        }
    }
}

/// # Errors
/// One sentence for each requirement that this machine lacks.
fn prepare(config: Config) -> Result<Host, Vec<String>> {
    let missing = missing();
    if !missing.is_empty() {
        return Err(missing);
    }
    Host::prepare(config).map_err(|error| vec![error.to_string()])
}

fn report(server: &OwnedFd, report: &LauncherResponse) {
    let _ = send(server, &encode(report), SendFlags::NOSIGNAL);
}

/// Carries out one request after the other until the server closes the connection.
fn serve(host: &Host, server: &OwnedFd) {
    loop {
        let Packet { bytes, fd: network } = match receive_packet(server, RecvFlags::empty()) {
            Err(Errno::INTR) => continue,
            Ok(Some(packet)) => packet,
            _ => return,
        };
        let Ok(request) = isolet_wire::frame::decode(&bytes) else { return };
        let outcome = match request {
            LauncherRequest::Launch(spec) => {
                launched(spec.name.clone(), create_sandbox(host, &spec, network))
            }
            LauncherRequest::CreateFiles(spec) => {
                launched(spec.name.clone(), create_files(host, &spec).map(|()| 0))
            }
            LauncherRequest::Scope(scope) => {
                let granted =
                    || report(server, &LauncherResponse::Granted { name: scope.name.clone() });
                scope_started(scope.name.clone(), start_scope(host, &scope, granted))
            }
        };
        report(server, &outcome);
    }
}

fn launched(name: String, result: Result<i32, StepError>) -> LauncherResponse {
    match result {
        Ok(pid) => LauncherResponse::Launched { name, pid },
        Err(error) => failed(name, error),
    }
}

fn scope_started(name: String, result: Result<(), ScopeError>) -> LauncherResponse {
    match result {
        Ok(()) => LauncherResponse::Launched { name, pid: 0 },
        Err(ScopeError::Grant { index, errno }) => {
            LauncherResponse::GrantRefused { name, index, errno: errno.raw_os_error() }
        }
        Err(ScopeError::Step(error)) => failed(name, error),
    }
}

fn failed(name: String, StepError { step, errno }: StepError) -> LauncherResponse {
    LauncherResponse::Failed { name, step: step.into_owned(), errno: errno.raw_os_error() }
}

/// Parses the command line that `VethClient::start` writes; `None`: this process is a launcher.
fn veth_options() -> Option<veth::VethOptions> {
    let mut args = std::env::args().skip(1);
    (args.next()? == "--veth").then_some(())?;
    let mut next = |flag: &str| (args.next()? == flag).then(|| args.next()).flatten();
    let data_dir = PathBuf::from(next("--data")?);
    let egress_proxy = PathBuf::from(next("--egress-proxy")?);
    let egress_proxy_user = next("--egress-proxy-user")?.parse().ok()?;
    Some(veth::VethOptions { data_dir, egress_proxy, egress_proxy_user })
}

/// Parses the command line that `LeaseGuard::start` writes; `None`: this process is a launcher.
fn guard_options() -> Option<lease_guard::GuardOptions> {
    let mut args = std::env::args().skip(1);
    (args.next()? == "--lease-guard").then_some(())?;
    let mut next = |flag: &str| (args.next()? == flag).then(|| args.next()).flatten();
    let data_dir = PathBuf::from(next("--data")?);
    let cgroup = next("--cgroup")?;
    Some(lease_guard::GuardOptions { data_dir, cgroup })
}

/// Parses the command line that `Launcher::start` writes.
fn launcher_config() -> Option<Config> {
    let mut args = std::env::args().skip(1);
    let mut next = |flag: &str| (args.next()? == flag).then(|| args.next()).flatten();
    let data_dir = PathBuf::from(next("--data")?);
    let agent = PathBuf::from(next("--agent")?);
    let uid_base = next("--uid-base")?.parse().ok()?;
    let cgroup = next("--cgroup")?;
    let stall_ms = next("--stall-ms")?.parse().ok()?;
    Some(Config { data_dir, launcher: PathBuf::new(), agent, uid_base, cgroup, stall_ms })
}
