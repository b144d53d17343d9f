//! The addresses that the server listens on: whether they are free, or which program uses them.

use super::finding::Finding;
use crate::config::ServerSettings;
use rustix::fs::FlockOperation;
use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

const GROUP: &str = "address";
/// The state of listening sockets in `/proc/net/tcp`.
const LISTENING: &str = "0A";

pub(super) fn check(settings: &ServerSettings, data_dir: &Path) -> Vec<Finding> {
    let mut all = vec![try_out("listen", settings.listen, data_dir)];
    all.extend(settings.metrics_listen.map(|at| try_out("metrics_listen", at, data_dir)));
    all
}

/// Listens on the address of a setting.
fn try_out(setting: &'static str, listen: SocketAddr, data_dir: &Path) -> Finding {
    match TcpListener::bind(listen) {
        Ok(_) => Finding::ok(GROUP, setting, format!("{listen} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => in_use(setting, listen, data_dir),
        Err(error) => Finding::failure(
            GROUP,
            setting,
            format!("cannot listen on {listen}: {error}"),
            format!("set `{setting}` to an address of this machine"),
        ),
    }
}

fn in_use(setting: &'static str, listen: SocketAddr, data_dir: &Path) -> Finding {
    let server = running_server(data_dir);
    let user = owner_of(listen.port());
    match (server, user) {
        (Some(server), Some(user)) if server == user.pid => Finding::ok(
            GROUP,
            setting,
            format!("the running server (process {server}) uses {listen}"),
        ),
        (Some(server), None) => Finding::unchecked(
            GROUP,
            setting,
            &format!("{listen} is in use, probably by the running server (process {server})"),
            "run `sudo isolet doctor`",
        ),
        (_, user) => {
            let by = user.map(|user| format!(" by {} (process {})", user.name, user.pid));
            Finding::failure(
                GROUP,
                setting,
                format!("{listen} is in use{}", by.unwrap_or_default()),
                format!("end the other program, or set another `{setting}`"),
            )
        }
    }
}

/// The process id of the server that uses the data directory.
fn running_server(data_dir: &Path) -> Option<u32> {
    let lock = fs::File::open(data_dir.join("lock")).ok()?;
    let free = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared).is_ok();
    if free {
        return None;
    }
    fs::read_to_string(data_dir.join("lock")).ok()?.trim().parse().ok()
}

struct PortUser {
    pid: u32,
    name: String,
}

/// The program that listens on a port. Without root, only one's own programs are found.
fn owner_of(port: u16) -> Option<PortUser> {
    let inodes: HashSet<String> =
        ["/proc/net/tcp", "/proc/net/tcp6"].iter().flat_map(|file| listeners(file, port)).collect();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok()).find_map(
        |pid| {
            let mut open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
            let listens = open.any(|fd| {
                let target = fs::read_link(fd.path()).unwrap_or_default();
                inodes.contains(target.to_string_lossy().as_ref())
            });
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            listens.then(|| PortUser { pid, name: name.trim().escape_debug().to_string() })
        },
    )
}

/// Sockets that listen on a port, as links in `/proc/PID/fd` show them.
fn listeners(file: &str, port: u16) -> Vec<String> {
    let suffix = format!(":{port:04X}");
    let text = fs::read_to_string(file).unwrap_or_default();
    let sockets = text.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = fields.get(1)?.ends_with(&suffix) && *fields.get(3)? == LISTENING;
        listens.then_some(())?;
        fields.get(9).map(|inode| format!("socket:[{inode}]"))
    });
    sockets.collect()
}
