//! Creates, wakes, sleeps, commands, lost agents, and restarts of the server's processes.

use crate::histogram::DurationHistogram;
use crate::labels::described;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::{Registry, Unit};

/// The changes of sandboxes.
#[derive(Debug)]
pub struct Lifecycle {
    /// Creates that took a sandbox of the warm pool.
    pub creates_from_pool: DurationHistogram,
    /// Creates that launched a sandbox.
    pub creates_new: DurationHistogram,
    /// Creates that failed after the request was accepted.
    pub create_failures: Counter,
    /// How long sandboxes took to wake.
    pub wakes: DurationHistogram,
    /// Wakes that failed. The sandbox stays asleep.
    pub wake_failures: Counter,
    /// How long sandboxes took to go to sleep.
    pub sleeps: DurationHistogram,
    /// Sleeps that failed, without those of sandboxes that turned out to be in use.
    pub sleep_failures: Counter,
    /// Creates that the warm pool served.
    pub pool_hits: Counter,
    /// Creates that found no sandbox in the warm pool, although it is enabled.
    pub pool_misses: Counter,
}

impl Lifecycle {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let [creates_from_pool, creates_new] = described(
            "isolet_create_duration",
            "Time from the request of a create until the agent of the sandbox answers, without the pull of its image",
        )
        .unit(Unit::Seconds)
        .family(registry, "source", ["warm_pool", "new"]);
        let create_failures =
            described("isolet_create_failures", "Creates that failed").counter(registry);
        let wakes = described("isolet_wake_duration", "Time that a wake takes")
            .unit(Unit::Seconds)
            .register(registry, DurationHistogram::default());
        let wake_failures =
            described("isolet_wake_failures", "Wakes that failed").counter(registry);
        let sleeps = described(
            "isolet_sleep_duration",
            "Time until a sandbox that falls asleep has saved its shells and nothing of it runs",
        )
        .unit(Unit::Seconds)
        .register(registry, DurationHistogram::default());
        let sleep_failures = described(
            "isolet_sleep_failures",
            "Sleeps that failed, without those of sandboxes that were in use",
        )
        .counter(registry);
        let [pool_hits, pool_misses] = described(
            "isolet_warm_pool_takes",
            "Creates that the warm pool served (hit) or had no sandbox for (miss), while it is enabled",
        )
        .family(registry, "result", ["hit", "miss"]);
        Self {
            creates_from_pool,
            creates_new,
            create_failures,
            wakes,
            wake_failures,
            sleeps,
            sleep_failures,
            pool_hits,
            pool_misses,
        }
    }
}

/// Durations of commands, as the agents measure them.
#[derive(Debug)]
pub struct Commands {
    /// How long commands of shells took.
    pub shell: DurationHistogram,
    /// Programs without a shell.
    pub program: DurationHistogram,
}

impl Commands {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let [shell, program] = described(
            "isolet_command_duration",
            "Run time of commands of shells and of programs without a shell (exec)",
        )
        .unit(Unit::Seconds)
        .family(registry, "kind", ["shell", "program"]);
        Self { shell, program }
    }
}

/// Agents that the server lost.
#[derive(Debug)]
pub struct AgentLosses {
    /// The agent has ended; the sandbox has failed.
    pub ended: Counter,
    /// The agent does not answer; the sandbox is unreachable.
    pub silent: Counter,
    /// The agent sent an invalid frame; the sandbox has failed.
    pub bad_frame: Counter,
}

impl AgentLosses {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let [ended, silent, bad_frame] = described(
            "isolet_agents_lost",
            "Agents that ended, stopped answering, or sent an invalid frame",
        )
        .family(registry, "cause", ["ended", "silent", "bad_frame"]);
        Self { ended, silent, bad_frame }
    }
}

/// Processes of the server that ended unexpectedly and were started again.
#[derive(Debug)]
pub struct Restarts {
    /// How often the launcher was restarted.
    pub launcher: Counter,
    /// The process that owns the veth pairs.
    pub veth: Counter,
    /// How often the egress proxy was restarted.
    pub egress_proxy: Counter,
}

impl Restarts {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let [launcher, veth, egress_proxy] = described(
            "isolet_restarts",
            "Processes of the server that ended unexpectedly and were replaced",
        )
        .family(registry, "process", ["launcher", "veth", "egress_proxy"]);
        Self { launcher, veth, egress_proxy }
    }
}
