//! Four network namespaces, and the edge between them.
//!
//! ```text
//! sandbox 10.231.0.2 (and .3) ── edge's 10.231.0.1 │ host 198.51.100.254 ── internet 198.51.100.1…
//! ```

use isolet_jail::filter::{FilterKind, bytes};
use isolet_wire::frame::decode;
use isolet_wire::launcher::encode;
use isolet_wire::network::{
    Guard, PACKET_BYTES_MAX, Policy, ProxyRequest, ProxyResponse, Refused, Rule,
};
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(crate) const SANDBOX: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 2);
pub(crate) const OTHER: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 3);
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 1);
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 254);
pub(crate) const RESOLVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// Hosts of the internet.
pub(crate) const GOOD: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
pub(crate) const EVIL: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 11);
pub(crate) const PRIVATE: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
pub(crate) const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// Long enough on any machine; reached only by what hangs.
pub(crate) const SOON: Duration = Duration::from_secs(20);

const LAYOUT: &str = r#"
set -e
at() { p=$1; shift; nsenter -t $p -n "$@"; }
for p in $H $I $E $S; do at $p ip link set lo up; done
at $H ip link add out type veth peer name in netns $I
at $H ip address add 198.51.100.254/24 dev out
at $H ip link set out up
for a in 198.51.100.1/24 198.51.100.10/24 198.51.100.11/24 203.0.113.5/32 10.9.9.9/32 169.254.169.254/32; do
  at $I ip address add $a dev in; done
at $I ip link set in up
for a in 203.0.113.0/24 10.9.9.9 169.254.169.254; do at $H ip route add $a via 198.51.100.1; done
at $E ip link add l1 type veth peer name eth0 netns $S
at $E ip address add 10.231.0.1/32 dev lo
at $E ip link set l1 up
at $E ip route add 10.231.0.2/31 dev l1
at $S ip address add 10.231.0.2/32 dev eth0
at $S ip address add 10.231.0.3/32 dev eth0
at $S ip link set eth0 up
at $S ip route add 10.231.0.1 dev eth0 src 10.231.0.2
at $S ip route add default via 10.231.0.1 dev eth0 src 10.231.0.2
at $E nft -f - <<END
table inet isolet {
  chain take { type nat hook prerouting priority dstnat
    iifname "l*" ip daddr != 10.231.0.1 meta l4proto tcp dnat ip to 10.231.0.1:15001
  }
}
END
"#;

/// A process that holds a network namespace.
struct Place {
    holder: Child,
    namespace: OwnedFd,
}

impl Place {
    fn new() -> Self {
        let mut holder = Command::new("unshare")
            .args(["-n", "sh", "-c", "echo; exec sleep 600"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare starts");
        let mut byte = [0];
        let said = holder.stdout.as_mut().expect("piped");
        std::io::Read::read_exact(said, &mut byte).expect("a namespace of its own");
        let namespace = File::open(format!("/proc/{}/ns/net", holder.id())).expect("it lives");
        Self { holder, namespace: namespace.into() }
    }

    fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                enter(&self.namespace);
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn enter(namespace: &OwnedFd) {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .expect("tests run as root");
}

/// All of it; ends with the test.
pub(crate) struct World {
    internet: Place,
    sandbox: Place,
    host: Place,
    _edges: Place,
    edge: Child,
    control: OwnedFd,
    settled: std::cell::Cell<u64>,
    /// What was told and nobody has asked for.
    heard: std::cell::RefCell<Vec<ProxyResponse>>,
}

impl World {
    /// A world whose sandbox has these rules.
    pub(crate) fn new(allow: &[&str], deny: &[&str]) -> Self {
        Self::trusting(Path::new("/dev/null"), allow, deny)
    }

    /// The same, with a host that trusts these certificates.
    pub(crate) fn trusting(roots: &Path, allow: &[&str], deny: &[&str]) -> Self {
        let host = Place::new();
        let internet = Place::new();
        let edges = Place::new();
        let sandbox = Place::new();
        let mut layout = Command::new("sh");
        layout.args(["-c", LAYOUT]);
        for (name, place) in [("H", &host), ("I", &internet), ("E", &edges), ("S", &sandbox)] {
            layout.env(name, place.holder.id().to_string());
        }
        assert!(layout.status().expect("sh starts").success());
        let (control, theirs) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .expect("a pair");
        sockopt::set_socket_timeout(&control, sockopt::Timeout::Recv, Some(SOON)).expect("a limit");
        let filter = tempfile::tempfile().expect("a file");
        filter.write_all_at(&bytes(FilterKind::EgressProxy), 0).expect("it is written");
        let sockets: [OwnedFd; 5] = edges.within(|| {
            let carrier = TcpListener::bind((GATEWAY, 15_001)).expect("the carrier's port");
            let names = UdpSocket::bind((GATEWAY, 53)).expect("the names' port");
            let names_tcp = TcpListener::bind((GATEWAY, 53)).expect("the names' port");
            [theirs, carrier.into(), names.into(), names_tcp.into(), filter.into()]
        });
        let edge = host.within(|| start(&sockets, roots));
        drop(sockets);
        let world = Self {
            internet,
            sandbox,
            host,
            _edges: edges,
            edge,
            control,
            settled: std::cell::Cell::default(),
            heard: std::cell::RefCell::default(),
        };
        assert_eq!(world.told(), ProxyResponse::Ready);
        world.guard(vec![HOST], &[]);
        world.rules(allow, deny);
        world
    }

    /// What is closed, in force when it returns.
    pub(crate) fn guard(&self, host: Vec<Ipv4Addr>, opened: &[(Ipv4Addr, u8)]) {
        let guard = Guard { host, opened: opened.to_vec() };
        let resolvers = vec![SocketAddr::from((RESOLVER, 53))];
        self.order(&ProxyRequest::Guard { guard, resolvers });
        self.settle();
    }

    /// The sandbox's rules, in force when it returns.
    pub(crate) fn rules(&self, allow: &[&str], deny: &[&str]) {
        self.order(&ProxyRequest::Set { address: SANDBOX, policy: policy(allow, deny) });
        self.settle();
    }

    pub(crate) fn order(&self, order: &ProxyRequest) {
        send(&self.control, &encode(order), SendFlags::NOSIGNAL).expect("the edge lives");
    }

    fn told(&self) -> ProxyResponse {
        let mut packet = vec![0; PACKET_BYTES_MAX];
        let (_, length) = recv(&self.control, packet.as_mut_slice(), RecvFlags::empty())
            .expect("the edge says something in time");
        decode(&packet[..length]).expect("a packet")
    }

    /// Until everything is told that was to be told.
    pub(crate) fn settle(&self) {
        let number = self.settled.get() + 1;
        self.settled.set(number);
        self.order(&ProxyRequest::Settle { number });
        loop {
            match self.told() {
                ProxyResponse::Settled { number: it } if it == number => return,
                other => self.heard.borrow_mut().push(other),
            }
        }
    }

    /// What was told since the last call.
    pub(crate) fn heard(&self) -> Vec<ProxyResponse> {
        self.settle();
        self.heard.take()
    }

    /// The refusals that were told since the last call: `host:port rule`, sorted.
    pub(crate) fn refused(&self) -> Vec<String> {
        let all = self.heard().into_iter().filter_map(|tell| match tell {
            ProxyResponse::Refused { refused, .. } => Some(line(&refused)),
            _ => None,
        });
        let mut all: Vec<_> = all.collect();
        all.sort();
        all.dedup();
        all
    }

    /// How often this line of [`Self::refused`] was told since the last call.
    pub(crate) fn refused_times(&self, what: &str) -> usize {
        let all = self.heard().into_iter().map(|tell| match tell {
            ProxyResponse::Refused { refused, .. } if line(&refused) == what => {
                refused.times as usize
            }
            _ => 0,
        });
        all.sum()
    }

    /// Does something as a program of the sandbox.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.sandbox.within(work)
    }

    /// Does something as a host of the internet.
    pub(crate) fn outside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.internet.within(work)
    }

    /// Does something as a program of the host.
    pub(crate) fn beside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.host.within(work)
    }

    /// A connection of the sandbox.
    pub(crate) fn connect(&self, to: Ipv4Addr, port: u16) -> TcpStream {
        self.inside(|| {
            let stream = TcpStream::connect((to, port)).expect("the edge takes it");
            stream.set_read_timeout(Some(SOON)).expect("a limit");
            stream
        })
    }

    /// The edge's process.
    pub(crate) fn pid(&self) -> u32 {
        self.edge.id()
    }

    /// Ends control, and waits for the edge to end by itself.
    pub(crate) fn end(mut self) -> bool {
        let (spare, _) = rustix::pipe::pipe().expect("a pipe");
        drop(std::mem::replace(&mut self.control, spare));
        self.edge.wait().expect("a child").success()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.edge.kill();
        let _ = self.edge.wait();
    }
}

pub(crate) fn policy(allow: &[&str], deny: &[&str]) -> Policy {
    let rules = |texts: &[&str]| texts.iter().map(|text| Rule::parse(text).expect(text)).collect();
    Policy { allow: rules(allow), deny: rules(deny) }
}

fn line(refused: &Refused) -> String {
    let port = refused.port.map(|port| format!(":{port}")).unwrap_or_default();
    format!("{} {}{port} {}", refused.protocol, refused.host, refused.rule)
}

/// The program with its five descriptors: a shell puts them in their places.
fn start(sockets: &[OwnedFd; 5], roots: &Path) -> Child {
    let mut places = String::new();
    for (place, socket) in (3..).zip(sockets) {
        rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::empty()).expect("open");
        places.push_str(&format!(" {place}<&{}", socket.as_raw_fd()));
    }
    // Those in the places themselves would be written over by others: copies lie above.
    let mut bash = Command::new("bash");
    let program = env!("CARGO_BIN_EXE_isolet-egress-proxy");
    bash.args(["-c", &format!("exec {program} {places}")]).env("SSL_CERT_FILE", roots);
    bash.spawn().expect("bash starts")
}
