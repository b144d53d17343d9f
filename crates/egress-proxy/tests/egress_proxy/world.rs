//! The test network: the namespaces of a sandbox, of the gateway, of the host and of the internet,
//! with the egress proxy between gateway and host.
//!
//! ```text
//! sandbox 10.231.0.2 (and .3) ── gateway 10.231.0.1 │ host 198.51.100.254 ── internet 198.51.100.1…
//! ```

use isolet_jail::filter::{FilterKind, bytes};
use isolet_wire::VERSION;
use isolet_wire::frame::decode;
use isolet_wire::launcher::encode;
use isolet_wire::network::{
    Guard, NetworkDenial, PACKET_BYTES_MAX, Policy, ProxyRequest, ProxyResponse, Rule,
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
/// Two hosts of the internet, one of which the rules of most tests allow.
pub(crate) const GOOD: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
pub(crate) const EVIL: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 11);
pub(crate) const PRIVATE: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
pub(crate) const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// Timeout of every wait: long enough on any machine, so that only a hang reaches it.
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

/// A network namespace, kept alive by a process.
struct NetworkNamespace {
    holder: Child,
    namespace: OwnedFd,
}

impl NetworkNamespace {
    fn new() -> Self {
        let mut holder = Command::new("unshare")
            .args(["-n", "sh", "-c", "echo; exec sleep 600"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare starts");
        let mut byte = [0];
        let output = holder.stdout.as_mut().expect("piped");
        std::io::Read::read_exact(output, &mut byte).expect("unshare creates a namespace");
        let namespace =
            File::open(format!("/proc/{}/ns/net", holder.id())).expect("the process runs");
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

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn enter(namespace: &OwnedFd) {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .expect("tests run as root");
}

/// The test network with a running egress proxy. Dropping it ends everything.
pub(crate) struct World {
    internet: NetworkNamespace,
    sandbox: NetworkNamespace,
    host: NetworkNamespace,
    _gateway: NetworkNamespace,
    proxy: Child,
    control: OwnedFd,
    settled: std::cell::Cell<u64>,
    /// Reports of the proxy that no test has read yet.
    reports: std::cell::RefCell<Vec<ProxyResponse>>,
}

impl World {
    /// A network whose sandbox has these rules.
    pub(crate) fn new(allow: &[&str], deny: &[&str]) -> Self {
        Self::trusting(Path::new("/dev/null"), allow, deny)
    }

    /// The same, where the proxy trusts the root certificates of this file.
    pub(crate) fn trusting(roots: &Path, allow: &[&str], deny: &[&str]) -> Self {
        let host = NetworkNamespace::new();
        let internet = NetworkNamespace::new();
        let gateway = NetworkNamespace::new();
        let sandbox = NetworkNamespace::new();
        let mut layout = Command::new("sh");
        layout.args(["-c", LAYOUT]);
        for (name, namespace) in [("H", &host), ("I", &internet), ("E", &gateway), ("S", &sandbox)]
        {
            layout.env(name, namespace.holder.id().to_string());
        }
        assert!(layout.status().expect("sh starts").success());
        let (control, theirs) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .expect("a pair");
        sockopt::set_socket_timeout(&control, sockopt::Timeout::Recv, Some(SOON))
            .expect("the timeout is valid");
        let filter = tempfile::tempfile().expect("a file");
        filter.write_all_at(&bytes(FilterKind::EgressProxy), 0).expect("it is written");
        let sockets: [OwnedFd; 5] = gateway.within(|| {
            let connections =
                TcpListener::bind((GATEWAY, 15_001)).expect("the port for connections is free");
            let dns_udp = UdpSocket::bind((GATEWAY, 53)).expect("port 53 is free");
            let dns_tcp = TcpListener::bind((GATEWAY, 53)).expect("port 53 is free");
            [theirs, connections.into(), dns_udp.into(), dns_tcp.into(), filter.into()]
        });
        let proxy = host.within(|| start(&sockets, roots));
        drop(sockets);
        let world = Self {
            internet,
            sandbox,
            host,
            _gateway: gateway,
            proxy,
            control,
            settled: std::cell::Cell::default(),
            reports: std::cell::RefCell::default(),
        };
        assert_eq!(world.receive(), ProxyResponse::Ready);
        world.guard(vec![HOST], &[]);
        world.rules(allow, deny);
        world
    }

    /// Sets the addresses that are closed for every sandbox. They are in force when this returns.
    pub(crate) fn guard(&self, host: Vec<Ipv4Addr>, opened: &[(Ipv4Addr, u8)]) {
        let guard = Guard { host, opened: opened.to_vec() };
        let resolvers = vec![SocketAddr::from((RESOLVER, 53))];
        self.send(&ProxyRequest::Guard { guard, resolvers });
        self.settle();
    }

    /// Sets the rules of the sandbox. They are in force when this returns.
    pub(crate) fn rules(&self, allow: &[&str], deny: &[&str]) {
        self.send(&ProxyRequest::Set { address: SANDBOX, policy: policy(allow, deny) });
        self.settle();
    }

    pub(crate) fn send(&self, request: &ProxyRequest) {
        send(&self.control, &encode(request), SendFlags::NOSIGNAL).expect("the proxy runs");
    }

    fn receive(&self) -> ProxyResponse {
        let mut packet = vec![0; PACKET_BYTES_MAX];
        let (_, length) = recv(&self.control, packet.as_mut_slice(), RecvFlags::empty())
            .expect("the proxy reports something in time");
        decode(&packet[..length]).expect("a packet")
    }

    /// Waits until the proxy has carried out every request and sent every report.
    pub(crate) fn settle(&self) {
        let number = self.settled.get() + 1;
        self.settled.set(number);
        self.send(&ProxyRequest::Settle { number });
        loop {
            match self.receive() {
                ProxyResponse::Settled { number: it } if it == number => return,
                other => self.reports.borrow_mut().push(other),
            }
        }
    }

    /// The reports since the last call.
    pub(crate) fn reports(&self) -> Vec<ProxyResponse> {
        self.settle();
        self.reports.take()
    }

    /// The denials that were reported since the last call, as `protocol host:port rule`, sorted and
    /// each once.
    pub(crate) fn denials(&self) -> Vec<String> {
        let all = self.reports().into_iter().filter_map(|response| match response {
            ProxyResponse::Refused { refused, .. } => Some(line(&refused)),
            _ => None,
        });
        let mut all: Vec<_> = all.collect();
        all.sort();
        all.dedup();
        all
    }

    /// How many denials with this line of [`Self::denials`] were reported since the last call.
    pub(crate) fn denial_count(&self, expected: &str) -> usize {
        let all = self.reports().into_iter().map(|response| match response {
            ProxyResponse::Refused { refused, .. } if line(&refused) == expected => {
                refused.times as usize
            }
            _ => 0,
        });
        all.sum()
    }

    /// Runs `work` in the network namespace of the sandbox.
    pub(crate) fn in_sandbox<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.sandbox.within(work)
    }

    /// Runs `work` in the network namespace of the internet.
    pub(crate) fn on_internet<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.internet.within(work)
    }

    /// Runs `work` in the network namespace of the host.
    pub(crate) fn on_host<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.host.within(work)
    }

    /// Connects from the sandbox.
    pub(crate) fn connect(&self, to: Ipv4Addr, port: u16) -> TcpStream {
        self.in_sandbox(|| {
            let stream = TcpStream::connect((to, port)).expect("the proxy accepts");
            stream.set_read_timeout(Some(SOON)).expect("the timeout is valid");
            stream
        })
    }

    /// The process id of the proxy.
    pub(crate) fn pid(&self) -> u32 {
        self.proxy.id()
    }

    /// Closes the control socket and waits until the proxy ends; returns whether it succeeded.
    pub(crate) fn end(mut self) -> bool {
        let (spare, _) = rustix::pipe::pipe().expect("a pipe");
        drop(std::mem::replace(&mut self.control, spare));
        self.proxy.wait().expect("a child").success()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
    }
}

pub(crate) fn policy(allow: &[&str], deny: &[&str]) -> Policy {
    let rules = |texts: &[&str]| texts.iter().map(|text| Rule::parse(text).expect(text)).collect();
    Policy { allow: rules(allow), deny: rules(deny) }
}

fn line(refused: &NetworkDenial) -> String {
    let port = refused.port.map(|port| format!(":{port}")).unwrap_or_default();
    format!("{} {}{port} {}", refused.protocol, refused.host, refused.rule)
}

/// Starts the proxy with its five descriptors. A shell moves them to the numbers 3 to 7.
fn start(sockets: &[OwnedFd; 5], roots: &Path) -> Child {
    let mut redirections = String::new();
    for (number, socket) in (3..).zip(sockets) {
        rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::empty()).expect("open");
        redirections.push_str(&format!(" {number}<&{}", socket.as_raw_fd()));
    }
    let mut bash = Command::new("bash");
    let program = env!("CARGO_BIN_EXE_isolet-egress-proxy");
    bash.args(["-c", &format!("exec {program} --protocol {VERSION} {redirections}")])
        .env("SSL_CERT_FILE", roots);
    bash.spawn().expect("bash starts")
}
