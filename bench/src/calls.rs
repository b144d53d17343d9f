//! System calls per command, of the server and of a sandbox's agent, counted by `strace`.

use crate::http::HttpClient;
use crate::server::BenchServer;
use crate::socket::SocketShell;
use anyhow::{Context, Result, ensure};
use isolet_kit::process;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long `strace` may take to attach to every thread, and to end.
const ATTACH: Duration = Duration::from_secs(10);
/// Commands before the counting, so that connections and buffers exist.
const WARM: usize = 20;

/// Turns of the two sides. A cell of the table is the median of its turns, because the number of waits
/// of a thread depends on other work of the machine.
const TURNS: usize = 5;

/// System calls per command, by name.
type Counts = BTreeMap<String, f64>;

/// One build with a server, a sandbox, and a connection of each kind.
struct Side {
    http: HttpClient,
    shell: SocketShell,
    /// Process ids of the server and of the agent.
    pids: [(&'static str, i32); 2],
    /// By connection and process, one entry for each turn.
    turns: BTreeMap<String, Vec<Counts>>,
    /// Stopped, with its sandbox, when the side is dropped.
    _server: BenchServer,
}

impl Side {
    fn start(programs: &Path) -> Result<Self> {
        // Without a warm pool, the only agent is that of the one sandbox.
        let server = BenchServer::start_with(programs, &[("ISOLET_WARM_POOL_SIZE", "0")])?;
        let mut http = HttpClient::connect(&server)?;
        http.create("counted")?;
        let shell = SocketShell::open(&server, "counted", false)?;
        let own = i32::try_from(server.pid())?;
        let pids = [("server", own), ("agent", agent(own)?)];
        Ok(Self { http, shell, pids, turns: BTreeMap::new(), _server: server })
    }

    fn turn(&mut self, commands: usize) -> Result<()> {
        for (name, pid) in self.pids {
            let socket = trace(pid, commands, || self.shell.run(":"))?;
            self.turns.entry(format!("WebSocket, {name}")).or_default().push(socket);
            let http = trace(pid, commands, || self.http.session("counted", ":"))?;
            self.turns.entry(format!("HTTP, {name}")).or_default().push(http);
        }
        Ok(())
    }

    /// The median of a value over all turns.
    fn median(&self, key: &str, of: impl Fn(&Counts) -> f64) -> f64 {
        let mut all: Vec<f64> = self.turns[key].iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    }
}

/// Prints a table for each kind of connection: calls per command of server and agent, old and new.
pub(crate) fn table(programs: [&Path; 2], commands: usize) -> Result<()> {
    let mut sides = [Side::start(programs[0])?, Side::start(programs[1])?];
    for _ in 0..TURNS {
        for side in &mut sides {
            side.turn(commands.div_ceil(TURNS))?;
        }
    }
    let [old, new] = &sides;
    for key in old.turns.keys() {
        println!("\n### system calls per command, {key}: median of {TURNS} turns");
        println!("| call | old | new |\n|---|---|---|");
        let turns = old.turns[key].iter().chain(&new.turns[key]);
        let names: BTreeSet<&String> = turns.flat_map(|turn| turn.keys()).collect();
        for name in names {
            let of = |turn: &Counts| turn.get(name).copied().unwrap_or(0.0);
            let was = old.median(key, of);
            let is = new.median(key, of);
            // Timers of the server are independent of commands.
            if was.max(is) >= 0.05 {
                println!("| {name} | {was:.2} | {is:.2} |");
            }
        }
        let sum = |turn: &Counts| turn.values().sum::<f64>();
        println!("| sum | {:.2} | {:.2} |", old.median(key, sum), new.median(key, sum));
    }
    Ok(())
}

/// The only agent that descends from a server.
fn agent(server: i32) -> Result<i32> {
    let below = |pid: i32| {
        let mut at = pid;
        while at > 1 {
            let Some(parent) = process::parent(at) else { return false };
            if parent == server {
                return true;
            }
            at = parent;
        }
        false
    };
    let all = process::all().into_iter();
    let mut agents =
        all.filter(|pid| process::name(*pid).starts_with("isolet-agent") && below(*pid));
    let agent = agents.next().context("the server has no agent")?;
    ensure!(agents.next().is_none(), "the server has more than one agent");
    Ok(agent)
}

/// Runs commands while `strace` counts the system calls of a process.
fn trace(pid: i32, commands: usize, mut command: impl FnMut() -> Result<usize>) -> Result<Counts> {
    for _ in 0..WARM {
        command()?;
    }
    let file = std::env::temp_dir().join(format!("isolet-bench-calls-{}", std::process::id()));
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-U", "calls,name", "-p"]).arg(pid.to_string()).arg("-o").arg(&file);
    let strace = strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut strace = strace.context("strace: install the package strace, or pass --calls 0")?;
    let counted = attached(&mut strace, pid)
        .and_then(|()| (0..commands).try_for_each(|_| command().map(drop)));
    if let Some(tracer) = Pid::from_raw(i32::try_from(strace.id())?) {
        let _ = kill_process(tracer, Signal::INT);
    }
    strace.wait()?;
    counted?;
    let text = std::fs::read_to_string(&file)?;
    std::fs::remove_file(&file)?;
    let counts = read(&text, commands);
    ensure!(!counts.is_empty(), "strace counted nothing: {text}");
    Ok(counts)
}

/// Waits until every thread of a process is traced.
fn attached(strace: &mut Child, pid: i32) -> Result<()> {
    let until = Instant::now() + ATTACH;
    let traced = |task: &Path| {
        let status = std::fs::read_to_string(task.join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        line.is_some_and(|tracer| tracer.trim() != "0")
    };
    loop {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
        if tasks.into_iter().all(|task| traced(&task.path())) {
            return Ok(());
        }
        ensure!(strace.try_wait()?.is_none(), "strace could not attach to process {pid}");
        ensure!(Instant::now() < until, "strace did not attach to process {pid} in {ATTACH:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Parses the summary of `strace`: lines with a count and a name, between lines of dashes.
fn read(text: &str, commands: usize) -> Counts {
    let line = |line: &str| {
        let (count, name) = line.trim().split_once(' ')?;
        let count: f64 = count.parse().ok()?;
        Some((name.trim().to_owned(), count / commands as f64))
    };
    text.lines().filter_map(line).filter(|(name, _)| name != "total").collect()
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn a_summary_of_strace_is_read() {
        let text = "    calls syscall\n--------- ----------------\n      800 epoll_wait\n       40 read\n--------- ----------------\n      840 total\n";
        let counts = read(text, 400);
        assert_eq!(counts.get("epoll_wait"), Some(&2.0));
        assert_eq!(counts.get("read"), Some(&0.1));
        assert_eq!(counts.len(), 2);
    }
}
