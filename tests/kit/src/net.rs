//! A small world for a test alone: "the host" is a network namespace of its own, the internet
//! another. What is done to links, rules and forwarding there touches nobody else.

use crate::{SOON, wait_until};
use rustix::thread::UnshareFlags;
use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use std::process::{Child, ChildStdin, Command, Output, Stdio};

/// The host's own address towards the world.
pub const HOST: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// A public host.
pub const PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
/// Another.
pub const OTHER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 20);
/// One of the host's own network.
pub const PRIVATE: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
/// What clouds tell about a machine.
pub const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

const HELLO: &str = include_str!("world.py");

/// The world; gone when it is dropped.
#[derive(Debug)]
pub struct World {
    internet: Child,
    _open: Option<ChildStdin>,
}

impl World {
    /// Leaves the machine's network for a host's of its own, joined to an internet. Everything that
    /// this thread starts from here on lives there.
    ///
    /// # Panics
    /// When one of its parts cannot be made.
    #[must_use]
    pub fn new() -> Self {
        Self::running(HELLO, &[])
    }

    /// Likewise, with another program for its internet, and words for that. It says `ready` when
    /// it is, and ends with its standard input.
    ///
    /// # Panics
    /// When one of its parts cannot be made.
    #[must_use]
    pub fn running(program: &str, words: &[&str]) -> Self {
        isolet_sys::namespaces::unshare(UnshareFlags::NEWNET).expect("a network namespace");
        isolet_sys::loopback::bring_up().expect("loopback");
        let mut internet = Command::new("unshare")
            .args(["--net", "--", "python3", "-c", program])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare and python3 are there");
        let open = internet.stdin.take();
        let mut line = String::new();
        let output = internet.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("it speaks");
        assert_eq!(line, "ready\n");
        let pid = internet.id();
        ip(&format!("link add wan type veth peer name eth0 netns {pid}"));
        ip("link set wan up");
        ip(&format!("addr add {HOST}/24 dev wan"));
        let there = |what: &str| {
            run("nsenter", &format!("-t {pid} -n ip {what}"));
        };
        there("link set lo up");
        there("link set eth0 up");
        for address in [PUBLIC, OTHER, PRIVATE, METADATA] {
            there(&format!("addr add {address}/32 dev eth0"));
            if address != OTHER {
                ip(&format!("route add {address} dev wan"));
            }
        }
        there(&format!("route add {HOST} dev eth0"));
        Self { internet, _open: open }
    }

    /// The network of the internet.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn network(&self) -> std::os::fd::OwnedFd {
        let path = format!("/proc/{}/ns/net", self.internet.id());
        std::fs::File::open(path).expect("it runs").into()
    }

    /// Runs a command line in the internet.
    #[track_caller]
    pub fn there(&self, command: &str) {
        drop(self.says(command));
    }

    /// Likewise; what it said.
    #[track_caller]
    #[must_use]
    pub fn says(&self, command: &str) -> String {
        run("nsenter", &format!("-t {} -n {command}", self.internet.id()))
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.internet.kill();
        let _ = self.internet.wait();
    }
}

/// `ip` with these words, in this host's network.
///
/// # Panics
/// When it fails.
#[track_caller]
pub fn ip(words: &str) {
    run("ip", words);
}

/// Changes this host's packet filter.
///
/// # Panics
/// When that fails.
#[track_caller]
pub fn nft(text: &str) {
    let output = Command::new("nft").arg(text).output().expect("nft is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}: {errors}");
}

/// Runs a program with these words; what it said.
///
/// # Panics
/// When it fails.
#[track_caller]
pub fn run(program: &str, words: &str) -> String {
    let output = Command::new(program).args(words.split(' ')).output().expect(program);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Links of this host's network that match.
#[must_use]
pub fn links(part: &str) -> Vec<String> {
    let all = run("ip", "-o link");
    all.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}

/// Runs a program with these words in the network behind a descriptor; what it said.
///
/// # Panics
/// When it fails.
#[track_caller]
pub fn inside(network: &impl std::os::fd::AsFd, program: &str, words: &str) -> String {
    let place = format!("--net=/proc/{}/fd/{}", std::process::id(), network.as_fd().as_raw_fd());
    run("nsenter", &format!("{place} {program} {words}"))
}

/// Runs a Python program in the network behind a descriptor.
///
/// # Panics
/// When it cannot be started.
pub fn python(network: &impl std::os::fd::AsFd, program: &str) -> Output {
    let place = format!("--net=/proc/{}/fd/{}", std::process::id(), network.as_fd().as_raw_fd());
    let mut command = Command::new("nsenter");
    command.args([&place, "timeout", "20", "python3", "-c", program]);
    command.stdin(Stdio::null()).output().expect("nsenter is there")
}

/// Likewise, of one that goes on; its output by lines.
///
/// # Panics
/// When it cannot be started.
#[must_use]
pub fn background(network: &impl std::os::fd::AsFd, program: &str) -> Background {
    let place = format!("--net=/proc/{}/fd/{}", std::process::id(), network.as_fd().as_raw_fd());
    let mut command = Command::new("nsenter");
    command.args([&place, "python3", "-u", "-c", program]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("nsenter is there");
    let lines = BufReader::new(child.stdout.take().expect("piped"));
    Background { child, lines }
}

/// A Python program that goes on; killed when it is dropped.
#[derive(Debug)]
pub struct Background {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Background {
    /// The next line; empty at the end.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("reads");
        line.trim_end().to_owned()
    }

    /// Waits until it has ended.
    pub fn end(&mut self) {
        wait_until("the program ends", SOON, || self.child.try_wait().expect("its child"));
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
