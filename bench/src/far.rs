//! A host outside the machine's network that accepts connections and answers DNS queries, and a
//! plain veth pair to it with the same masquerading but without Isolet. Everything is in network
//! namespaces that this program creates; the machine's own network is not changed.

use anyhow::{Result, ensure};
use isolet_kit::net::{PUBLIC, World, ip, run};
use isolet_sys::namespaces::unshare;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The address of the outside host, and of its DNS server.
pub(crate) const HOST: SocketAddrV4 = SocketAddrV4::new(PUBLIC, 4433);
pub(crate) const RESOLVER: SocketAddrV4 = SocketAddrV4::new(PUBLIC, 5300);
/// The name of the outside host.
pub(crate) const NAME: &str = "bench.example";
/// Bytes of one read or write.
const PART_BYTES: usize = 256 * 1024;
/// The longest wait for an answer, so that a table fails instead of hanging.
const WAIT: Duration = Duration::from_secs(20);
/// The request after the greeting, which precedes a count of bytes.
const GIVE: u8 = b'g';
const TAKE: u8 = b't';

/// The outside network, and the plain veth pair to it.
pub(crate) struct Far {
    /// The network namespace of a client at the other end of the plain veth pair.
    pub(crate) plain: OwnedFd,
    _world: World,
}

impl Far {
    /// Moves this thread, and all that it starts, into a new network namespace.
    pub(crate) fn new() -> Result<Self> {
        let world = World::new();
        let beyond = world.network();
        let sockets = within(&beyond, || {
            let names = UdpSocket::bind(("0.0.0.0", RESOLVER.port()))?;
            Ok((TcpListener::bind(("0.0.0.0", HOST.port()))?, names))
        });
        let (listener, names) = sockets?;
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || host(stream));
            }
        });
        std::thread::spawn(move || resolver(&names));
        Ok(Self { plain: plain()?, _world: world })
    }
}

/// Runs a function in another network namespace, on a new thread.
pub(crate) fn within<R: Send>(
    network: &OwnedFd,
    work: impl FnOnce() -> Result<R> + Send,
) -> Result<R> {
    let there = || {
        enter(network.as_fd())?;
        work()
    };
    std::thread::scope(|scope| scope.spawn(there).join().expect("no panic"))
}

fn enter(network: BorrowedFd<'_>) -> Result<()> {
    Ok(move_into_link_name_space(network, Some(LinkNameSpaceType::Network))?)
}

/// Creates the client's namespace, a veth pair into the host's, and masquerading.
fn plain() -> Result<OwnedFd> {
    let made = std::thread::spawn(|| -> Result<OwnedFd> {
        unshare(UnshareFlags::NEWNET)?;
        Ok(std::fs::File::open("/proc/thread-self/ns/net")?.into())
    });
    let network = made.join().expect("no panic")?;
    let place = format!("/proc/{}/fd/{}", std::process::id(), network.as_raw_fd());
    ip(&format!("link add plain0 type veth peer name eth0 netns {place}"));
    ip("addr add 10.99.0.1/24 dev plain0");
    ip("link set plain0 up");
    let there = |words: &str| run("nsenter", &format!("--net={place} ip {words}"));
    there("link set lo up");
    there("addr add 10.99.0.2/24 dev eth0");
    there("link set eth0 up");
    there("route add default via 10.99.0.1");
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    run("nft", "add table ip bench");
    run("nft", "add chain ip bench post { type nat hook postrouting priority srcnat ; }");
    run("nft", "add rule ip bench post ip saddr 10.99.0.0/24 oifname wan masquerade");
    Ok(network)
}

/// Answers a greeting, and then sends or receives bytes as requested.
fn host(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.read_exact(&mut vec![0; hello().len()])?;
    stream.write_all(&[1])?;
    let mut part = vec![0; PART_BYTES];
    loop {
        let mut asked = [0; 9];
        stream.read_exact(&mut asked)?;
        let mut left = u64::from_be_bytes(asked[1..].try_into()?) as usize;
        while left > 0 && asked[0] == GIVE {
            let some = left.min(part.len());
            stream.write_all(&part[..some])?;
            left -= some;
        }
        while left > 0 {
            left -= read(&mut stream, &mut part)?;
        }
        stream.write_all(&[1])?;
    }
}

fn read(stream: &mut TcpStream, into: &mut [u8]) -> Result<usize> {
    let length = stream.read(into)?;
    ensure!(length > 0, "the connection has ended");
    Ok(length)
}

/// A DNS server that answers every query with one address.
fn resolver(socket: &UdpSocket) -> Result<()> {
    let mut packet = [0; 1500];
    loop {
        let (length, from) = socket.recv_from(&mut packet)?;
        let Some(end) = packet[12..length].iter().position(|byte| *byte == 0) else { continue };
        let question = &packet[12..(12 + end + 5).min(length)];
        let mut answer = packet[..2].to_vec();
        answer.extend([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        answer.extend(question);
        answer.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 1, 0x2c, 0, 4]);
        answer.extend(PUBLIC.octets());
        socket.send_to(&answer, from)?;
    }
}

/// A TLS ClientHello for [`NAME`]. The proxy does not read what follows it.
pub(crate) fn hello() -> Vec<u8> {
    let sized = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes(), bytes].concat();
    let part = |kind: u16, bytes: &[u8]| [&kind.to_be_bytes()[..], &sized(bytes)].concat();
    let name = [&[0][..], &sized(NAME.as_bytes())].concat();
    let key = [&[0, 29][..], &sized(&[9; 32])].concat();
    let parts = [
        part(0, &sized(&name)),
        part(10, &sized(&[0, 29])),
        part(13, &sized(&[4, 3, 8, 4])),
        part(43, &[2, 3, 4]),
        part(51, &sized(&key)),
    ];
    let head = [&[3, 3][..], &[7; 32], &[0], &sized(&[0x13, 1, 0x13, 2]), &[1, 0]].concat();
    let body = [head, sized(&parts.concat())].concat();
    let message = [&[1, 0][..], &sized(&body)].concat();
    [&[0x16, 3, 1][..], &sized(&message)].concat()
}

/// Opens a connection from this thread's network and waits for the first byte of the host.
pub(crate) fn connect() -> Result<(TcpStream, Duration)> {
    let hello = hello();
    let begun = Instant::now();
    let mut stream = TcpStream::connect(HOST)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(WAIT))?;
    stream.set_write_timeout(Some(WAIT))?;
    stream.write_all(&hello)?;
    stream.read_exact(&mut [0])?;
    Ok((stream, begun.elapsed()))
}

/// Transfers a number of bytes from the host or to it.
pub(crate) fn carried(count: u64, down: bool) -> Result<Duration> {
    let (mut stream, _) = connect()?;
    let mut part = vec![0; PART_BYTES];
    let mut asked = vec![if down { GIVE } else { TAKE }];
    asked.extend(count.to_be_bytes());
    let begun = Instant::now();
    stream.write_all(&asked)?;
    let mut left = count as usize;
    while left > 0 {
        let some = left.min(part.len());
        left -= if down {
            read(&mut stream, &mut part[..some])?
        } else {
            stream.write_all(&part[..some])?;
            some
        };
    }
    stream.read_exact(&mut [0])?;
    Ok(begun.elapsed())
}

/// The DNS server of this thread's network.
pub(crate) fn asks(resolver: SocketAddrV4) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(resolver)?;
    socket.set_read_timeout(Some(WAIT))?;
    Ok(socket)
}

/// Sends one query and waits for the answer.
pub(crate) fn lookup(socket: &UdpSocket, name: &str) -> Result<Duration> {
    let mut question = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        question.push(label.len() as u8);
        question.extend(label.as_bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    let mut answer = [0; 1500];
    let begun = Instant::now();
    socket.send(&question)?;
    let length = socket.recv(&mut answer)?;
    let time = begun.elapsed();
    let answer = &answer[..length];
    ensure!(answer.ends_with(&PUBLIC.octets()), "{name} is not answered: {answer:?}");
    Ok(time)
}
