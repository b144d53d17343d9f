//! The loop of the process that owns links: one server at a time, the kernel's news, the edge.

use super::base::{Base, Failure};
use super::edge::Edge;
use super::keeper::Keeper;
use super::nft;
use super::peer::{Peer, listen};
use super::plan::{HOST_END, Range};
use super::route::News;
use isolet_wire::links::{LinkAsk, LinkOrder, LinkTell, Settings};
use isolet_wire::network::{EdgeOrder, EdgeTell, Guard};
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
/// How long it may take to settle.
const SETTLE: Duration = Duration::from_millis(500);

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

struct Links {
    options: Options,
    keeper: Keeper,
    boot: u64,
    resolvers: Vec<std::net::SocketAddr>,
    listener: OwnedFd,
    peer: Option<Peer>,
    /// Has connected, and said nothing yet.
    candidate: Option<Peer>,
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
    let peer = Peer::new(first);
    let begin = match peer.wait() {
        Some(LinkOrder { number, ask: LinkAsk::Begin(settings) }) => (number, settings),
        _ => return,
    };
    let (number, settings) = begin;
    match Links::begin(options, settings) {
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

impl Links {
    fn begin(options: Options, settings: Settings) -> Result<Self, Failure> {
        let nft = nft::find().ok_or("nft is missing: install the package nftables")?;
        let alias = format!("isolet {}", options.data_dir.display());
        let alias: String = alias.chars().take(200).collect();
        let (mut base, host) =
            Base::make(nft, alias, (Range::new(settings.range), settings.connections_max))?;
        let guard = Guard { host, opened: settings.opened };
        if let Err(failure) = base.connect(&guard) {
            base.remove();
            return Err(failure);
        }
        let listener = listen(&options.data_dir).map_err(|error| {
            base.remove();
            format!("cannot listen in {}: {error}", options.data_dir.display())
        })?;
        super::drop_rights();
        let boot = super::random();
        let mut links = Self {
            options,
            keeper: Keeper::new(base, guard, boot as u32),
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

    fn start_edge(&mut self) {
        self.edge_again = None;
        if !self.options.edge.is_file() {
            return;
        }
        let started =
            Edge::start(&self.options.edge, &self.keeper.base.doors, self.options.edge_user);
        match started {
            Ok(edge) => {
                self.keeper.edge = Some(edge);
                self.keeper.brief_edge(&self.resolvers);
            }
            Err(_) => self.edge_again = Some(Instant::now() + EDGE_AGAIN),
        }
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
                self.hear_edge();
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

    fn accept(&mut self) {
        if let Some(peer) = Peer::accept(&self.listener) {
            self.candidate = Some(peer);
        }
    }

    /// Who begins is the server from now on: the one before was killed, or should not be there.
    fn hear_candidate(&mut self) {
        let Some(peer) = self.candidate.take() else { return };
        match peer.next() {
            Ok(Some((order, fd))) if matches!(order.ask, LinkAsk::Begin(_)) => {
                self.peer = Some(peer);
                self.order(order, fd);
            }
            Ok(None) => self.candidate = Some(peer),
            _ => {}
        }
    }

    fn orders(&mut self) {
        loop {
            let Some(peer) = &self.peer else { return };
            match peer.next() {
                Ok(Some((order, fd))) => self.order(order, fd),
                Ok(None) => return,
                Err(_) => self.peer = None,
            }
        }
    }

    fn order(&mut self, order: LinkOrder, fd: Option<OwnedFd>) {
        let number = order.number;
        let done = |done: Result<(), Failure>| done.map(|()| LinkTell::Done);
        let answer = match order.ask {
            LinkAsk::Begin(settings) => self.begun_anew(settings),
            LinkAsk::Take { name, policy } => match self.keeper.take(name, policy) {
                Ok((standing, space)) => {
                    self.say(number, &LinkTell::Taken(standing), Some(&space));
                    self.fill = Some(Instant::now() + PAUSE);
                    return;
                }
                Err(failure) => Err(failure),
            },
            LinkAsk::Attach { name, policy } => match fd {
                Some(fd) => self.keeper.attach(name, policy, &fd).map(LinkTell::Taken),
                None => Err("no descriptor of a network namespace came with it".into()),
            },
            LinkAsk::Set { id, policy } => done(self.keeper.set(id, policy)),
            LinkAsk::Release { id } => done(self.keeper.release(id)),
            LinkAsk::List { after } => Ok(LinkTell::Listed(self.keeper.list(after))),
            LinkAsk::Counters { id } => self.keeper.counters(id).map(LinkTell::Counted),
            LinkAsk::Settle => {
                self.settle();
                Ok(LinkTell::Done)
            }
        };
        let answer = answer.unwrap_or_else(|why| LinkTell::Failed { why });
        self.answer(number, answer);
    }

    /// Another server: it may have been told otherwise by its operator.
    fn begun_anew(&mut self, settings: Settings) -> Result<LinkTell, Failure> {
        let guard = Guard { opened: settings.opened, ..self.keeper.guard.clone() };
        let changed = guard != self.keeper.guard || settings.resolvers != self.resolvers;
        let max = settings.connections_max;
        if guard != self.keeper.guard || max != self.keeper.base.connections_max {
            let kept = self.keeper.elements();
            self.keeper.base.connections_max = max;
            self.keeper.base.tables(&kept, &guard)?;
            self.keeper.guard = guard;
        }
        self.resolvers = settings.resolvers;
        if changed {
            self.keeper.brief_edge(&self.resolvers);
        }
        Ok(self.ready())
    }

    /// Everything that was refused until now is told before this comes back.
    fn settle(&mut self) {
        self.keeper.hear();
        self.settles += 1;
        let number = self.settles;
        self.keeper.tell_edge(&EdgeOrder::Settle { number });
        let until = Instant::now() + SETTLE;
        while let Some(edge) = &self.keeper.edge {
            let left = until.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::from_borrowed_fd(edge.as_fd(), PollFlags::IN)];
            let left = Timespec::try_from(left).ok();
            if !matches!(poll(&mut fds, left.as_ref()), Ok(count) if count > 0) {
                break;
            }
            if self.hear_edge() >= number {
                break;
            }
        }
        self.tell_refusals();
    }

    fn tell_refusals(&mut self) {
        for (name, refused) in self.keeper.refusals() {
            self.news(LinkTell::Refused { name, refused });
        }
    }

    /// Hears the edge; the last number for which all is told, else 0.
    fn hear_edge(&mut self) -> u64 {
        let mut settled = 0;
        while let Some(edge) = &self.keeper.edge {
            match edge.heard() {
                Ok(Some(EdgeTell::Settled { number })) => settled = number,
                Ok(Some(EdgeTell::Refused { address, refused })) => {
                    if let Some(name) = self.keeper.refused(address, refused.times) {
                        self.news(LinkTell::Refused { name, refused });
                    }
                }
                Ok(Some(
                    EdgeTell::Ready | EdgeTell::Carried { .. } | EdgeTell::Authority { .. },
                )) => {}
                Ok(None) => break,
                Err(_) => {
                    self.keeper.edge = None;
                    self.edge_again = Some(Instant::now() + EDGE_AGAIN);
                    self.repaired("isolet-edge has ended: it is started anew".into());
                }
            }
        }
        settled
    }

    fn repaired(&mut self, what: String) {
        self.news(LinkTell::Repaired { what });
    }

    fn gone(&mut self, (id, name): (u32, String)) {
        self.sweep.get_or_insert_with(|| Instant::now() + SWEEP);
        self.news(LinkTell::Gone { name, id });
    }

    fn link_news(&mut self) {
        for news in self.keeper.base.link_news.heard() {
            match news {
                News::Gone(index) => {
                    if let Some(gone) = self.keeper.forget(index) {
                        self.gone(gone);
                    }
                }
                News::Lost => self.look_at_links(),
                News::Link | News::Address => {}
            }
        }
    }

    fn look_at_links(&mut self) {
        for gone in self.keeper.look() {
            self.gone(gone);
        }
    }

    fn host_news(&mut self) {
        let news = self.keeper.base.host_news.heard();
        if news.iter().any(|news| matches!(news, News::Address | News::Lost)) {
            self.look_at_addresses();
        }
        if news.iter().any(|news| *news != News::Address) {
            self.look_at_way();
        }
    }

    fn look_at_addresses(&mut self) {
        let Ok(host) = self.keeper.base.addresses() else { return };
        if host == self.keeper.guard.host {
            return;
        }
        let guard = Guard { host, ..self.keeper.guard.clone() };
        if let Err(why) = self.keeper.base.between(&super::text::guard(&guard)) {
            return self.repaired(format!("the host's new addresses are not closed: {why}"));
        }
        self.keeper.guard = guard.clone();
        let resolvers = self.resolvers.clone();
        self.keeper.tell_edge(&EdgeOrder::Guard { guard, resolvers });
    }

    fn look_at_way(&mut self) {
        match self.keeper.base.look_at_way() {
            Ok(None) => {}
            Ok(Some(what)) => self.repaired(what),
            Err(why) => self.repaired(format!("{HOST_END} is not as it should be: {why}")),
        }
        // What came of our own doing.
        let news = self.keeper.base.host_news.heard();
        if news.contains(&News::Address) {
            self.look_at_addresses();
        }
    }

    fn look_at_tables(&mut self) {
        let (kept, guard) = (self.keeper.elements(), self.keeper.guard.clone());
        match self.keeper.base.look_at_tables(&kept, &guard) {
            Ok(None) => {}
            Ok(Some(what)) => self.repaired(what),
            Err(why) => self.repaired(format!("the packet filter is not as it should be: {why}")),
        }
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
