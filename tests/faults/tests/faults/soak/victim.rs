//! Chooses which process is killed, and when. Every victim is found by the server's pid or its data
//! directory, never by a name alone.

use super::Field;
use super::random::Random;
use isolet_kit::{Server, process, veth};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// The pause between two kills of agents: each costs a sandbox, and the others need time to work.
const AGENT_REST: Duration = Duration::from_secs(5);

/// The kinds of victims; some are listed more than once to be killed more often.
const VICTIMS: [&str; 12] = [
    "server",
    "server",
    "server",
    "launcher",
    "launcher",
    "agent",
    "agent",
    "egress proxy",
    "egress proxy",
    "veth manager",
    "veth manager",
    "two at once",
];

pub(super) struct Killer<'a> {
    field: &'a Field,
    random: Random,
    last_agent: Instant,
    kills: BTreeMap<&'static str, usize>,
}

impl<'a> Killer<'a> {
    pub(super) fn new(field: &'a Field, random: Random) -> Self {
        Self { field, random, last_agent: Instant::now(), kills: BTreeMap::new() }
    }

    /// Waits a random time, then kills one process.
    pub(super) fn kill(&mut self, server: &mut Server) {
        self.random.rest(200, 2500);
        match VICTIMS[self.random.below(VICTIMS.len())] {
            "two at once" => {
                self.one(server, "launcher");
                self.one(server, "veth manager");
                self.one(server, "server");
            }
            victim => self.one(server, victim),
        }
    }

    fn one(&mut self, server: &mut Server, victim: &'static str) {
        let manager = veth::find_manager(&self.field.data);
        let pid = match victim {
            "server" => {
                self.count(victim);
                server.kill();
                self.random.rest(0, 500);
                return server.launch();
            }
            "launcher" => launcher(server),
            "veth manager" => manager,
            "egress proxy" => manager.and_then(veth::egress_proxy),
            _ => return self.agent(server),
        };
        if let Some(pid) = pid {
            self.count(victim);
            process::kill(pid);
        }
    }

    /// Kills an agent, and with it its sandbox.
    fn agent(&mut self, server: &Server) {
        if self.last_agent.elapsed() < AGENT_REST {
            return;
        }
        let agents = server.agents();
        let Some(&pid) = agents.get(self.random.below(agents.len())) else { return };
        // Recorded first, because the worker may notice the end before this function continues.
        let Some(directory) = directory(pid) else { return };
        self.field.killed().insert(directory);
        self.last_agent = Instant::now();
        self.count("agent");
        process::kill(pid);
    }

    fn count(&mut self, victim: &'static str) {
        *self.kills.entry(victim).or_default() += 1;
    }
}

impl fmt::Display for Killer<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "kills: {:?}", self.kills)
    }
}

/// The server's launcher, if it has one now.
fn launcher(server: &Server) -> Option<i32> {
    let own = server.pid();
    process::all().into_iter().find(|pid| {
        process::parent(*pid) == Some(own)
            && process::name(*pid).starts_with("isolet-launcher")
            && process::alive(*pid)
    })
}

/// The name of the directory of an agent's sandbox, which is also the name of the parent of the
/// agent's cgroup.
fn directory(agent: i32) -> Option<String> {
    let groups = std::fs::read_to_string(format!("/proc/{agent}/cgroup")).ok()?;
    let mut paths = groups.lines().filter_map(|line| line.rsplit(':').next());
    let path = paths.find_map(|path| path.strip_suffix("/agent"))?;
    path.rsplit('/').next().map(str::to_owned)
}
