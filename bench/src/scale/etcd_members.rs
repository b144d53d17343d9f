//! Three members of etcd on the loopback interface, and what they say about themselves.

use anyhow::{Context, Result, bail, ensure};
use isolet_cluster::etcd::{Etcd, EtcdSettings};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

/// Where `make etcd` unpacks Debian's packages.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/clients/etcd/usr/bin");
/// Where the members keep their data: on a disk, not in memory.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target");
/// The number of members.
const MEMBERS: usize = 3;
/// How long a start or an election may take.
const WAIT: Duration = Duration::from_secs(60);

/// A running cluster. It ends, and its data is deleted, when it is dropped.
pub(crate) struct EtcdMembers {
    folder: TempDir,
    members: Vec<Member>,
}

struct Member {
    client_port: u16,
    peer_port: u16,
    process: Option<Child>,
}

/// Numbers of each member, by the names of etcd's metrics.
pub(crate) struct ClusterState {
    members: Vec<BTreeMap<String, f64>>,
}

impl EtcdMembers {
    pub(crate) async fn start() -> Result<Self> {
        std::fs::create_dir_all(FOLDER)?;
        let folder = tempfile::Builder::new().prefix("scale-").tempdir_in(FOLDER)?;
        let ports = free_ports(2 * MEMBERS)?;
        let member =
            |ports: &[u16]| Member { client_port: ports[0], peer_port: ports[1], process: None };
        let mut all = Self { folder, members: ports.chunks(2).map(member).collect() };
        for index in 0..MEMBERS {
            all.launch(index)?;
        }
        all.wait_for_leader(None).await?;
        Ok(all)
    }

    /// Starts a member, on its former data if it has some.
    pub(crate) fn launch(&mut self, index: usize) -> Result<()> {
        let peer = |member: &Member| format!("http://127.0.0.1:{}", member.peer_port);
        let named = |(index, member): (usize, &Member)| format!("m{index}={}", peer(member));
        let all: Vec<String> = self.members.iter().enumerate().map(named).collect();
        let member = &self.members[index];
        let client = url(member);
        let name = format!("m{index}");
        let log = std::fs::File::create(self.folder.path().join(format!("{name}.log")))?;
        let process = Command::new(program("etcd"))
            .args(["--name", &name, "--data-dir"])
            .arg(self.folder.path().join(&name))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer(member)])
            .args(["--initial-advertise-peer-urls", &peer(member)])
            .args(["--initial-cluster", &all.join(","), "--log-level", "error"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("etcd does not start: run `make etcd`")?;
        self.members[index].process = Some(process);
        Ok(())
    }

    /// Ends a member with SIGKILL.
    pub(crate) fn kill(&mut self, index: usize) -> Result<()> {
        if let Some(mut process) = self.members[index].process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// The URLs for clients.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.members.iter().map(url).collect()
    }

    /// A client of one member, or of all.
    pub(crate) fn client(&self, index: Option<usize>) -> Result<Etcd> {
        let all = self.urls();
        let endpoints = index.map_or_else(|| all.clone(), |index| vec![all[index].clone()]);
        Ok(Etcd::new(EtcdSettings { endpoints, tls: None })?)
    }

    pub(crate) async fn version(&self) -> Result<String> {
        let statuses = self.client(Some(0))?.statuses().await;
        Ok(statuses.into_iter().next().context("no member")?.1?.version)
    }

    /// Waits until all members that run agree on a leader other than `former`. Returns its index.
    pub(crate) async fn wait_for_leader(&self, former: Option<usize>) -> Result<usize> {
        let end = Instant::now() + WAIT;
        while Instant::now() < end {
            if let Some(leader) = self.leader().await?.filter(|leader| Some(*leader) != former) {
                return Ok(leader);
            }
            sleep(Duration::from_millis(20)).await;
        }
        bail!("etcd has no leader; its logs were in {}", self.folder.path().display())
    }

    async fn leader(&self) -> Result<Option<usize>> {
        let mut ids = Vec::new();
        let mut leaders = Vec::new();
        for (index, member) in self.members.iter().enumerate() {
            let client = self.client(Some(index))?.with_timeout(Duration::from_secs(1));
            let running = member.process.is_some();
            let status = if running { client.statuses().await.pop() } else { None };
            let status = status.and_then(|(_, status)| status.ok());
            ensure_known(running, status.is_some(), &mut leaders);
            ids.push(status.as_ref().map(|status| status.member_id));
            leaders.extend(status.map(|status| status.leader));
        }
        let first = leaders.first().copied().filter(|leader| *leader != 0);
        let agreed = first.filter(|first| leaders.iter().all(|leader| leader == first));
        Ok(agreed.and_then(|leader| ids.iter().position(|id| *id == Some(leader))))
    }

    /// Makes a member the leader.
    pub(crate) async fn move_leader(&self, to: usize) -> Result<()> {
        let leader = self.wait_for_leader(None).await?;
        if leader != to {
            let statuses = self.client(Some(to))?.statuses().await;
            let id = statuses.into_iter().next().context("no member")?.1?.member_id;
            self.etcdctl(&[leader], &["move-leader", &format!("{id:x}")])?;
        }
        Ok(())
    }

    /// The members by the number of their watches, and that number: the fewest first.
    pub(crate) async fn by_watches(&self) -> Result<Vec<(usize, f64)>> {
        let watches = |member: &BTreeMap<String, f64>| {
            member.get("etcd_debugging_mvcc_watcher_total").copied().unwrap_or_default()
        };
        let state = self.state().await?;
        let mut all: Vec<(usize, f64)> = state.members.iter().map(watches).enumerate().collect();
        all.sort_by(|one, other| one.1.total_cmp(&other.1));
        Ok(all)
    }

    /// Deletes all former revisions, and returns the space to the file system.
    pub(crate) async fn compact(&self) -> Result<()> {
        let page = self.client(None)?.list(b"none", None, 1, None).await?;
        let revision = page.revision.to_string();
        self.etcdctl(&[0], &["compact", "--physical", "--command-timeout", "120s", &revision])?;
        self.etcdctl(&[0, 1, 2], &["defrag", "--command-timeout", "120s"])
    }

    fn etcdctl(&self, members: &[usize], arguments: &[&str]) -> Result<()> {
        let urls: Vec<String> = members.iter().map(|index| url(&self.members[*index])).collect();
        let output = Command::new(program("etcdctl"))
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &urls.join(",")])
            .args(arguments)
            .output()?;
        ensure!(output.status.success(), "etcdctl {arguments:?}: {output:?}");
        Ok(())
    }

    /// The metrics of all members that run.
    pub(crate) async fn state(&self) -> Result<ClusterState> {
        let mut members = Vec::new();
        for member in self.members.iter().filter(|member| member.process.is_some()) {
            members.push(metrics(member.client_port).await?);
        }
        Ok(ClusterState { members })
    }
}

/// A member that runs and does not answer knows no leader.
fn ensure_known(running: bool, answered: bool, leaders: &mut Vec<u64>) {
    if running && !answered {
        leaders.push(0);
    }
}

impl ClusterState {
    /// A number of all members together.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.members.iter().filter_map(|member| member.get(name)).sum()
    }

    /// A number of the member that has the most.
    pub(crate) fn most(&self, name: &str) -> f64 {
        self.members.iter().filter_map(|member| member.get(name)).copied().fold(0.0, f64::max)
    }
}

impl Drop for EtcdMembers {
    fn drop(&mut self) {
        for index in 0..self.members.len() {
            let _ = self.kill(index);
        }
    }
}

/// Prints the size of the database and the memory of the members.
pub(crate) fn print_states(states: &[(&str, &ClusterState)]) {
    println!("\n### etcd: one member (the largest of three)");
    println!("| state | database | of it in use | memory (RSS) | keys |");
    println!("|---|---|---|---|---|");
    for (name, state) in states {
        let mib = |metric: &str| state.most(metric) / f64::from(1 << 20);
        println!(
            "| {name} | {:.1} MiB | {:.1} MiB | {:.0} MiB | {:.0} |",
            mib("etcd_mvcc_db_total_size_in_bytes"),
            mib("etcd_mvcc_db_total_size_in_use_in_bytes"),
            mib("process_resident_memory_bytes"),
            state.most("etcd_debugging_mvcc_keys_total"),
        );
    }
}

fn url(member: &Member) -> String {
    format!("http://127.0.0.1:{}", member.client_port)
}

/// The metrics of a member; those with labels are summed.
async fn metrics(port: u16) -> Result<BTreeMap<String, f64>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let mut all = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, value)) = line.rsplit_once(' ') else { continue };
        let name = name.split('{').next().unwrap_or_default();
        if let Ok(value) = value.parse::<f64>() {
            *all.entry(name.to_owned()).or_insert(0.0) += value;
        }
    }
    ensure!(all.contains_key("process_resident_memory_bytes"), "etcd shows no metrics");
    Ok(all)
}

/// Ports that were free just now.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<std::io::Result<_>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// A program of Debian's packages `etcd-server` and `etcd-client`, unpacked or installed.
fn program(name: &str) -> PathBuf {
    let unpacked = Path::new(PROGRAMS).join(name);
    if unpacked.is_file() { unpacked } else { Path::new("/usr/bin").join(name) }
}
