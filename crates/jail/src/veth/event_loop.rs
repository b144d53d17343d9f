//! The loop of the process that owns links: one server at a time, the kernel's news, the edge.

mod proxy;
mod reconcile;
mod requests;

use super::client_conn::ClientConn;
use super::gateway::{Failure, Gateway};
use super::manager::VethManager;
use super::nft;
use super::policy::Range;
use super::privileges::drop_privileges;
use super::socket::listen;
use isolet_wire::links::{LinkAsk, LinkOrder, LinkTell, Settings};
use isolet_wire::network::Guard;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// After a create: who took a link is about to start something in it, that comes first.
const PAUSE: Duration = Duration::from_millis(20);
/// How long elements of links that are gone stay in the sets, unless something else changes them.
const SWEEP: Duration = Duration::from_secs(1);
/// How often everything is looked at without a reason.
const LOOK: Duration = Duration::from_secs(30);
/// How long after it has ended, or could not be started, the edge is started anew.
const EDGE_AGAIN: Duration = Duration::from_secs(1);

/// Six for each connection that the edge carries.
const DESCRIPTORS: u64 = 128 * 1024;

/// What it is told on its command line.
#[derive(Debug)]
pub struct Options {
    /// The data directory; its socket is `network/links.sock` below it.
    pub data_dir: PathBuf,
    /// The edge's program.
    pub edge: PathBuf,
    /// The edge's user and group.
    pub edge_user: u32,
}

struct EventLoop {
    options: Options,
    keeper: VethManager,
    boot: u64,
    resolvers: Vec<std::net::SocketAddr>,
    listener: OwnedFd,
    peer: Option<ClientConn>,
    /// Has connected, and said nothing yet.
    candidate: Option<ClientConn>,
    /// Do these when their time has come.
    fill: Option<Instant>,
    sweep: Option<Instant>,
    look: Instant,
    edge_again: Option<Instant>,
    settles: u64,
}

/// Owns links until no server and no sandbox needs them. `first` is the server that started it.
pub fn run(options: Options, first: OwnedFd) {
    let _ = rustix::process::setsid();
    descriptors();
    let _ = rustix::process::chdir("/");
    let peer = ClientConn::new(first);
    let begin = match peer.wait() {
        Some(LinkOrder { number, ask: LinkAsk::Begin(settings) }) => (number, settings),
        _ => return,
    };
    let (number, settings) = begin;
    match EventLoop::begin(options, settings) {
        Ok(mut links) => {
            links.peer = Some(peer);
            links.answer(number, links.ready());
            links.serve();
            links.keeper.base.remove();
        }
        Err(why) => {
            let tell =
                LinkTell::Ready { boot: 0, names: false, missing: vec![why], warnings: Vec::new() };
            peer.say(number, &tell, None);
        }
    }
}

/// As many descriptors as the edge, which inherits the limit, has use for.
fn descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile).maximum;
    let most = Some(now.map_or(DESCRIPTORS, |now| now.max(DESCRIPTORS)));
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), maximum: most });
}

impl EventLoop {
    fn begin(options: Options, settings: Settings) -> Result<Self, Failure> {
        let nft = nft::find().ok_or("nft is missing: install the package nftables")?;
        // A copy of the data directory, at the same path too, is another's.
        let place = crate::identity::directory_id(&options.data_dir);
        let alias = format!("isolet {}", place.map_err(|error| error.to_string())?);
        let (mut base, host) =
            Gateway::create(nft, alias, (Range::new(settings.range), settings.connections_max))?;
        let guard = Guard { host, opened: settings.opened };
        if let Err(failure) = base.connect(&guard) {
            base.remove();
            return Err(failure);
        }
        let listener = listen(&options.data_dir).map_err(|error| {
            base.remove();
            format!("cannot listen in {}: {error}", options.data_dir.display())
        })?;
        drop_privileges();
        let boot = random();
        let mut links = Self {
            options,
            keeper: VethManager::new(base, guard, boot as u32),
            boot,
            resolvers: settings.resolvers,
            listener,
            peer: None,
            candidate: None,
            fill: Some(Instant::now()),
            sweep: None,
            look: Instant::now() + LOOK,
            edge_again: None,
            settles: 0,
        };
        links.start_edge();
        Ok(links)
    }

    fn ready(&self) -> LinkTell {
        let names = self.keeper.edge.is_some();
        let warnings = self.keeper.base.closing();
        LinkTell::Ready { boot: self.boot, names, missing: Vec::new(), warnings }
    }

    fn answer(&mut self, number: u64, tell: LinkTell) {
        self.say(number, &tell, None);
    }

    fn news(&mut self, tell: LinkTell) {
        self.say(0, &tell, None);
    }

    fn say(&mut self, number: u64, tell: &LinkTell, fd: Option<&OwnedFd>) {
        if self.peer.as_ref().is_some_and(|peer| !peer.say(number, tell, fd)) {
            self.peer = None;
        }
    }

    /// How long nothing is to be done.
    fn left(&self) -> Duration {
        let now = Instant::now();
        let until = [self.fill, self.sweep, self.edge_again, Some(self.look)];
        let until = until.into_iter().flatten().map(|at| at.saturating_duration_since(now));
        until.chain(self.keeper.told_left()).min().unwrap_or(LOOK)
    }

    fn serve(&mut self) {
        while self.peer.is_some() || self.keeper.used() {
            let readable = self.wait();
            if readable[0] {
                self.accept();
            }
            if readable[1] {
                self.orders();
            }
            if readable[2] {
                self.keeper.hear();
            }
            if readable[3] {
                self.link_news();
            }
            if readable[4] {
                self.host_news();
            }
            if readable[5] && self.keeper.base.heard_tables() {
                self.look_at_tables();
            }
            if readable[6] {
                self.hear_edge(None);
            }
            if readable[7] {
                self.hear_candidate();
            }
            self.due();
        }
    }

    /// Waits for any of: a server, its orders, refused packets, links, the host, tables, the edge,
    /// another server.
    fn wait(&self) -> [bool; 8] {
        let base = &self.keeper.base;
        let [host_tables, tables] = base.table_news();
        let mut fds = vec![
            PollFd::new(&self.listener, PollFlags::IN),
            PollFd::from_borrowed_fd(base.log.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(base.link_news.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(base.host_news.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(host_tables.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(tables.as_fd(), PollFlags::IN),
        ];
        let peer = self.peer.as_ref().map(|peer| {
            fds.push(PollFd::from_borrowed_fd(peer.as_fd(), PollFlags::IN));
            fds.len() - 1
        });
        let edge = self.keeper.edge.as_ref().map(|edge| {
            fds.push(PollFd::from_borrowed_fd(edge.as_fd(), PollFlags::IN));
            fds.len() - 1
        });
        let candidate = self.candidate.as_ref().map(|peer| {
            fds.push(PollFd::from_borrowed_fd(peer.as_fd(), PollFlags::IN));
            fds.len() - 1
        });
        let left = Timespec::try_from(self.left()).ok();
        if poll(&mut fds, left.as_ref()).is_err() {
            return [false; 8];
        }
        let some = |at: usize| !fds[at].revents().is_empty();
        let of = |at: Option<usize>| at.is_some_and(some);
        [some(0), of(peer), some(1), some(2), some(3), some(4) || some(5), of(edge), of(candidate)]
    }

    /// What has its time now.
    fn due(&mut self) {
        let now = Instant::now();
        let past = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if self.keeper.told_left().is_some_and(|left| left.is_zero()) {
            self.tell_refusals();
        }
        if let Some(what) = self.keeper.mended.take() {
            self.repaired(what);
        }
        if past(self.edge_again) {
            self.start_edge();
        }
        if past(self.sweep) {
            self.sweep = None;
            if self.keeper.has_stale() && self.keeper.sweep().is_err() {
                self.look_at_tables();
            }
        }
        // However a link went: released by the server, or gone with its sandbox.
        if self.keeper.has_stale() {
            self.sweep.get_or_insert(now + SWEEP);
        }
        if past(self.fill) {
            self.fill = None;
            let filled = self.keeper.fill();
            if self.keeper.is_short() {
                let pause = if filled.is_ok() { PAUSE } else { EDGE_AGAIN };
                self.fill = Some(Instant::now() + pause);
            }
        }
        if self.look <= now {
            self.look = now + LOOK;
            self.look_at_links();
            self.look_at_addresses();
            self.look_at_way();
            self.look_at_tables();
        }
    }
}

/// A number that no other start has.
fn random() -> u64 {
    use std::io::Read as _;
    let mut bytes = [0_u8; 8];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_or_else(|_| u64::from(std::process::id()), |()| u64::from_ne_bytes(bytes))
}
