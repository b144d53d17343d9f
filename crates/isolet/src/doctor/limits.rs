//! Limits of the kernel and of this process.

use super::finding::Finding;
use isolet_jail::probe;
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::io::ErrorKind;

const GROUP: &str = "limits";

/// Open files below which the server hardly works, and below which it serves fewer clients than by
/// default. Programs in sandboxes get at most as many.
const FILES_MIN: u64 = 1024;
const FILES: u64 = 65_536;
/// Processes of the whole machine: 64 sandboxes with the default limit of 512.
const PROCESSES: u64 = 32_768;
/// Bytes of compiled seccomp filters of the whole machine: five sandboxes at their limit of
/// processes, or about 5,000 small ones.
const FILTER_BYTES: u64 = 256 << 20;

/// A setting of the kernel, and the value below which there is a warning.
struct Sysctl {
    check: &'static str,
    name: &'static str,
    low: u64,
    value: u64,
    what: &'static str,
}

const SYSCTLS: [Sysctl; 5] = [
    Sysctl {
        check: "processes",
        name: "kernel.pid_max",
        low: PROCESSES,
        value: 4_194_304,
        what: "process ids of the machine",
    },
    Sysctl {
        check: "threads",
        name: "kernel.threads-max",
        low: PROCESSES,
        value: 1_048_576,
        what: "threads of the machine",
    },
    Sysctl {
        check: "inotify instances",
        name: "fs.inotify.max_user_instances",
        low: 128,
        value: 1024,
        what: "inotify instances of a sandbox",
    },
    Sysctl {
        check: "inotify watches",
        name: "fs.inotify.max_user_watches",
        low: 16_384,
        value: 1_048_576,
        what: "inotify watches of a sandbox",
    },
    Sysctl {
        check: "compiled filters",
        name: "net.core.bpf_jit_limit",
        low: FILTER_BYTES,
        value: 1 << 30,
        what: "bytes of compiled seccomp filters of the machine",
    },
];

pub(super) fn check() -> Vec<Finding> {
    let mut all = vec![open_files(), tasks()];
    all.extend(SYSCTLS.iter().map(sysctl));
    all
}

fn open_files() -> Finding {
    let check = "open files";
    let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let message = format!("{limit} for the server, and for each program in a sandbox");
    let remedy = "set LimitNOFILE=1048576 in the systemd unit, or run `ulimit -Hn 1048576` before";
    match limit {
        0..FILES_MIN => Finding::failure(GROUP, check, message, remedy),
        FILES_MIN..FILES => Finding::warning(GROUP, check, message, remedy),
        _ => Finding::ok(GROUP, check, message),
    }
}

/// The limit of our own control group, which sandboxes share on hosts with version 1.
fn tasks() -> Finding {
    let check = "tasks";
    match probe::tasks_max() {
        Some(limit) if limit < PROCESSES => Finding::warning(
            GROUP,
            check,
            format!("{limit} processes for the server's control group"),
            "set TasksMax=infinity in the systemd unit",
        ),
        Some(limit) => Finding::ok(GROUP, check, format!("{limit} processes for the server")),
        None => Finding::ok(GROUP, check, "no limit for the server"),
    }
}

fn sysctl(sysctl: &Sysctl) -> Finding {
    let Sysctl { check, name, low, value, what } = *sysctl;
    let remedy = format!("sysctl -w {name}={value}");
    match fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))) {
        Ok(text) => match text.trim().parse::<u64>() {
            Ok(limit) if limit < low => {
                Finding::warning(GROUP, check, format!("{limit} {what}"), remedy)
            }
            Ok(limit) => Finding::ok(GROUP, check, format!("{limit} {what}")),
            Err(_) => Finding::unchecked(GROUP, check, &format!("{name} is no number"), remedy),
        },
        // A kernel without the feature has no limit on it.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Finding::ok(GROUP, check, format!("no limit ({name} does not exist)"))
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Finding::needs_root(GROUP, check)
        }
        Err(error) => Finding::unchecked(GROUP, check, &format!("{name}: {error}"), remedy),
    }
}
