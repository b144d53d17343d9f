//! The processes and cgroups of a server's sandboxes.

use super::Server;
use crate::{SOON, Sandbox, process, traces, wait_until};
use std::fs;
use std::path::PathBuf;

impl Server {
    /// The cgroups that contain those of the sandboxes, one in each hierarchy.
    #[must_use]
    pub fn parent_cgroups(&self) -> Vec<PathBuf> {
        traces::parent_cgroups(&self.data())
    }

    /// The pids of processes of its sandboxes with this short name, in the host's pid namespace.
    #[must_use]
    pub fn processes(&self, name: &str) -> Vec<i32> {
        let members = traces::members(&self.data());
        members.into_iter().filter(|pid| process::name(*pid) == name).collect()
    }

    /// The cgroup of each sandbox in each hierarchy, sorted.
    #[must_use]
    pub fn cgroups(&self) -> Vec<PathBuf> {
        traces::cgroups(&self.data())
    }

    /// The pids of its sandboxes' agents.
    #[must_use]
    pub fn agents(&self) -> Vec<i32> {
        traces::agents(&self.data())
    }

    /// The pid of the agent of its only sandbox.
    #[must_use]
    pub fn agent(&self) -> i32 {
        self.agents().first().copied().expect("an agent runs")
    }

    /// Deletes a sandbox, and waits until its agent is not listed any more: it may end a moment after
    /// the answer.
    ///
    /// # Panics
    /// When its agent does not end.
    #[track_caller]
    pub fn delete_with_agent(&self, sandbox: &Sandbox) {
        let inside = sandbox.says("readlink /proc/self/ns/pid");
        let own = |pid: &i32| {
            let namespace = fs::read_link(format!("/proc/{pid}/ns/pid"));
            namespace.is_ok_and(|at| at.to_string_lossy() == inside.trim_end())
        };
        let agent = self.agents().into_iter().find(own).expect("its agent runs");
        sandbox.delete();
        wait_until("its agent ends", SOON, || (!self.agents().contains(&agent)).then_some(()));
    }

    /// The pid of its launcher, once there is one.
    #[must_use]
    pub fn launcher(&self) -> i32 {
        let own = self.pid();
        wait_until("a launcher runs", SOON, || {
            process::all().into_iter().find(|pid| {
                process::parent(*pid) == Some(own)
                    && process::name(*pid).starts_with("isolet-launcher")
                    && process::alive(*pid)
            })
        })
    }
}
