//! etcd with three members, each in a network namespace, with TLS and client certificates.

use crate::addresses::{ETCD_PORT, etcd};
use crate::namespace::NetworkNamespace;
use crate::switch::Switch;
use isolet_kit::https::Authority;
use isolet_kit::{LONG, Value, wait_until};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where `make etcd` unpacks Debian's packages.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/clients/etcd/usr/bin");
/// The port on which members talk to each other.
const MEMBER_PORT: u16 = 2380;

/// What a client of etcd needs.
#[derive(Debug, Clone)]
pub struct EtcdFiles {
    /// The certificate of the authority of etcd's certificates.
    pub ca: PathBuf,
    /// The certificate of the client.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// What is needed to run `etcdctl` against a cluster, apart from the cluster.
#[derive(Debug, Clone)]
pub struct EtcdClient {
    urls: Vec<String>,
    files: EtcdFiles,
}

impl EtcdClient {
    /// A command of `etcdctl`.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program("etcdctl"));
        command
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.urls.join(","), "--command-timeout", "5s"])
            .arg("--cacert")
            .arg(&self.files.ca)
            .arg("--cert")
            .arg(&self.files.certificate)
            .arg("--key")
            .arg(&self.files.key)
            .args(words);
        command
    }

    /// Runs a command to its end and returns what it prints; `None` if it fails.
    ///
    /// # Panics
    /// When `etcdctl` is missing.
    #[must_use]
    pub fn ask(&self, words: &[&str]) -> Option<String> {
        let output = self.command(words).stdin(Stdio::null()).output().expect("etcdctl is there");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A running cluster. All members end when it is dropped.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Member>,
    client: EtcdFiles,
    folder: PathBuf,
}

#[derive(Debug)]
struct Member {
    address: Ipv4Addr,
    network: NetworkNamespace,
    child: Option<Child>,
}

impl EtcdCluster {
    /// Starts `count` members and waits until they have a leader. `folder` is where they keep their
    /// files.
    ///
    /// # Panics
    /// When etcd is not installed (`make etcd`), or does not start.
    #[must_use]
    pub fn start(switch: &Switch, folder: &Path, count: u8) -> Self {
        let authority = Authority::new();
        fs::create_dir_all(folder).expect("a directory");
        let ca = folder.join("ca.pem");
        fs::write(&ca, authority.pem()).expect("written");
        let addresses: Vec<Ipv4Addr> = (0..count).map(etcd).collect();
        let names: Vec<String> = addresses.iter().map(Ipv4Addr::to_string).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let files = |name: &str, names: &[&str]| {
            let own = folder.join(name);
            fs::create_dir_all(&own).expect("a directory");
            authority.issue(names).write(&own)
        };
        files("server", &names);
        let (certificate, key) = files("client", &["isolet-node"]);
        let members = addresses.into_iter().map(|address| Member {
            address,
            network: switch.attach(address),
            child: None,
        });
        let client = EtcdFiles { ca, certificate, key };
        let mut cluster = Self { members: members.collect(), client, folder: folder.to_owned() };
        (0..usize::from(count)).for_each(|index| cluster.launch(index));
        cluster.wait_for_leader();
        cluster
    }

    /// The URLs for clients.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        let url = |member: &Member| format!("https://{}:{ETCD_PORT}", member.address);
        self.members.iter().map(url).collect()
    }

    /// What runs `etcdctl` against all members.
    #[must_use]
    pub fn client(&self) -> EtcdClient {
        self.client_of(&self.urls())
    }

    fn client_of(&self, urls: &[String]) -> EtcdClient {
        EtcdClient { urls: urls.to_vec(), files: self.client.clone() }
    }

    /// The addresses of all members.
    #[must_use]
    pub fn addresses(&self) -> Vec<Ipv4Addr> {
        self.members.iter().map(|member| member.address).collect()
    }

    /// The files of a client.
    #[must_use]
    pub fn client_files(&self) -> &EtcdFiles {
        &self.client
    }

    /// The network namespace of a member.
    #[must_use]
    pub fn network(&self, index: usize) -> &NetworkNamespace {
        &self.members[index].network
    }

    /// Starts a member that does not run, on its former data.
    ///
    /// # Panics
    /// When it runs, or cannot be started.
    pub fn launch(&mut self, index: usize) {
        let name = |address: &Ipv4Addr| format!("etcd{}", address.octets()[3]);
        let peer = |address: &Ipv4Addr| format!("http://{address}:{MEMBER_PORT}");
        let all: Vec<String> = self
            .members
            .iter()
            .map(|member| format!("{}={}", name(&member.address), peer(&member.address)))
            .collect();
        let member = &mut self.members[index];
        assert!(member.child.is_none(), "it runs");
        let address = &member.address;
        let client = format!("https://{address}:{ETCD_PORT}");
        let server = self.folder.join("server");
        let log = self.folder.join(format!("{}.log", name(address)));
        let log = fs::OpenOptions::new().create(true).append(true).open(log).expect("a log");
        let mut command = member.network.command(program("etcd"));
        command
            .args(["--name", &name(address), "--data-dir"])
            .arg(self.folder.join(name(address)))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer(address)])
            .args(["--initial-advertise-peer-urls", &peer(address)])
            .args(["--initial-cluster", &all.join(","), "--log-level", "error"])
            .args(["--auto-compaction-retention", "1h", "--unsafe-no-fsync"])
            // A member that the machine delays for a second is not one that has died.
            .args(["--heartbeat-interval", "150", "--election-timeout", "1500"])
            .arg("--client-cert-auth")
            .arg("--trusted-ca-file")
            .arg(&self.client.ca)
            .arg("--cert-file")
            .arg(server.join("cert.pem"))
            .arg("--key-file")
            .arg(server.join("key.pem"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        member.child = Some(command.spawn().expect("nsenter is there"));
    }

    /// Ends a member with SIGKILL.
    pub fn kill(&mut self, index: usize) {
        if let Some(mut child) = self.members[index].child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts all members that do not run, and waits for a leader.
    pub fn launch_all(&mut self) {
        for index in 0..self.members.len() {
            if self.members[index].child.is_none() {
                self.launch(index);
            }
        }
        self.wait_for_leader();
    }

    /// Waits until all running members agree on a leader, and returns its index.
    ///
    /// # Panics
    /// When that does not happen.
    pub fn wait_for_leader(&self) -> usize {
        wait_until("etcd has a leader", LONG, || self.leader())
    }

    /// The index of the leader on which all running members agree.
    fn leader(&self) -> Option<usize> {
        let running = self.members.iter().filter(|member| member.child.is_some());
        let urls: Vec<String> =
            running.map(|member| format!("https://{}:{ETCD_PORT}", member.address)).collect();
        let text = self.client_of(&urls).ask(&["endpoint", "status", "-w", "json"])?;
        let status: Value = text.parse().ok()?;
        let status = status.as_array()?;
        let leader = status.first()?["Status"]["leader"].as_u64().filter(|id| *id != 0)?;
        let agree = |one: &Value| one["Status"]["leader"].as_u64() == Some(leader);
        if status.len() != urls.len() || !status.iter().all(agree) {
            return None;
        }
        let own = |one: &&Value| one["Status"]["header"]["member_id"].as_u64() == Some(leader);
        let url = status.iter().find(own)?["Endpoint"].as_str()?;
        self.urls().iter().position(|known| known == url)
    }

    /// The value of a key, read from whichever member answers; `None` if it has none.
    ///
    /// # Panics
    /// When etcd does not answer.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value> {
        let text = self.etcdctl(&["get", "--print-value-only", key]);
        text.trim().parse().ok()
    }

    /// The value with which a key was created; `None` if it does not exist.
    ///
    /// # Panics
    /// When etcd does not answer.
    #[must_use]
    pub fn first_value(&self, key: &str) -> Option<Value> {
        let revision = self.created_at(key)?.to_string();
        let text = self.etcdctl(&["get", "--print-value-only", "--rev", &revision, key]);
        text.trim().parse().ok()
    }

    /// The revision at which a key was created; `None` if it does not exist.
    ///
    /// # Panics
    /// When etcd does not answer.
    #[must_use]
    pub fn created_at(&self, key: &str) -> Option<u64> {
        let answer: Value = self.etcdctl(&["get", "-w", "json", key]).parse().ok()?;
        answer["kvs"].get(0)?["create_revision"].as_u64()
    }

    /// All keys below a prefix.
    ///
    /// # Panics
    /// When etcd does not answer.
    #[must_use]
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let text = self.etcdctl(&["get", "--prefix", "--keys-only", prefix]);
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// Runs `etcdctl` against all members, again while it fails: they may be electing a leader. What it
    /// does must have the same effect when it is done twice.
    ///
    /// # Panics
    /// When it fails for too long.
    pub fn etcdctl(&self, words: &[&str]) -> String {
        wait_until(&format!("etcdctl {words:?}"), LONG, || self.client().ask(words))
    }
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|index| self.kill(index));
    }
}

/// A program of Debian's packages `etcd-server` and `etcd-client`, unpacked or installed.
fn program(name: &str) -> PathBuf {
    let unpacked = Path::new(PROGRAMS).join(name);
    let found = if unpacked.is_file() { unpacked } else { Path::new("/usr/bin").join(name) };
    assert!(found.is_file(), "{} is missing: run `make etcd`", found.display());
    found
}
