//! The event loop of the process that owns the veth pairs. It serves one server at a time, and
//! handles events of the kernel and of the egress proxy.

mod proxy;
mod reconcile;
mod requests;
mod wait;

use super::addresses::AddressRange;
use super::client_conn::ClientConn;
use super::gateway::{Failure, Gateway, GatewayOptions};
use super::manager::VethManager;
use super::nft;
use super::privileges::drop_privileges;
use crate::identity::directory_id;
use crate::kernel::helper_socket::HelperSocket;
use isolet_wire::network::Guard;
use isolet_wire::veth::{VethRequest, VethRequestBody, VethResponseBody, VethSettings};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The pause between claiming a pair and preparing others, so that the sandbox starts first.
const PREPARE_PAUSE: Duration = Duration::from_millis(20);
/// The longest time that elements of removed pairs stay in the sets.
const STALE_TIME: Duration = Duration::from_secs(1);
/// The interval of reconciliation without an event.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(30);
/// The pause before the egress proxy is started again, and after a failure to prepare pairs.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The descriptor limit, which the egress proxy inherits: six for each of its connections.
const OPEN_FILES: u64 = 128 * 1024;

/// The options of the command line.
#[derive(Debug)]
pub struct VethOptions {
    /// The data directory; the process listens as `network/links.sock` below it.
    pub data_dir: PathBuf,
    /// The program of the egress proxy.
    pub egress_proxy: PathBuf,
    /// The egress proxy's user and group.
    pub egress_proxy_user: u32,
}

struct EventLoop {
    options: VethOptions,
    manager: VethManager,
    /// A random number that identifies this process.
    boot: u64,
    resolvers: Vec<SocketAddr>,
    listener: OwnedFd,
    client: Option<ClientConn>,
    /// A server that has connected but has sent no request yet.
    candidate: Option<ClientConn>,
    prepare_at: Option<Instant>,
    remove_stale_at: Option<Instant>,
    reconcile_at: Instant,
    start_proxy_at: Option<Instant>,
    /// The number of the last `Settle` command to the proxy.
    settle_number: u64,
}

/// Runs until no server and no sandbox needs the process. `first` is the connection of the server
/// that started it.
pub fn run(options: VethOptions, first: OwnedFd) {
    let _ = rustix::process::setsid();
    raise_open_files_limit();
    let _ = rustix::process::chdir("/");
    let client = ClientConn::new(first);
    let Some(VethRequest { number, body: VethRequestBody::Hello { version } }) = client.receive()
    else {
        return;
    };
    if !client.greet(number, version) {
        return;
    }
    let Some(VethRequest { number, body: VethRequestBody::Begin(settings) }) = client.receive()
    else {
        return;
    };
    match EventLoop::create(options, settings) {
        Ok(mut event_loop) => {
            event_loop.client = Some(client);
            event_loop.answer(number, event_loop.ready());
            event_loop.serve();
            event_loop.manager.gateway.remove();
        }
        Err(failure) => {
            let body = VethResponseBody::Ready {
                boot: 0,
                names: false,
                missing: vec![failure],
                warnings: Vec::new(),
            };
            client.send(number, &body, None);
        }
    }
}

fn raise_open_files_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let maximum = Some(maximum.map_or(OPEN_FILES, |maximum| maximum.max(OPEN_FILES)));
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(OPEN_FILES), maximum });
}

impl EventLoop {
    fn create(options: VethOptions, settings: VethSettings) -> Result<Self, Failure> {
        let nft = nft::find().ok_or("nft is missing: install the package nftables")?;
        // A copy of the data directory has another id, even at the same path.
        let directory_id = directory_id(&options.data_dir).map_err(|error| error.to_string())?;
        let mut gateway = Gateway::create(GatewayOptions {
            nft,
            alias: format!("isolet {directory_id}"),
            range: AddressRange::new(settings.range),
            connections_max: settings.connections_max,
        })?;
        let guard = Guard { host: gateway.host_addresses()?, opened: settings.opened };
        if let Err(failure) = gateway.connect(&guard) {
            gateway.remove();
            return Err(failure);
        }
        let listener = HelperSocket::VETH.listen(&options.data_dir).map_err(|error| {
            gateway.remove();
            format!("cannot listen in {}: {error}", options.data_dir.display())
        })?;
        drop_privileges();
        let boot = random();
        let mut event_loop = Self {
            options,
            manager: VethManager::new(gateway, guard, boot as u32),
            boot,
            resolvers: settings.resolvers,
            listener,
            client: None,
            candidate: None,
            prepare_at: Some(Instant::now()),
            remove_stale_at: None,
            reconcile_at: Instant::now() + RECONCILE_INTERVAL,
            start_proxy_at: None,
            settle_number: 0,
        };
        event_loop.start_proxy();
        Ok(event_loop)
    }

    fn ready(&self) -> VethResponseBody {
        let names = self.manager.proxy.is_some();
        let warnings = self.manager.gateway.firewall_warnings();
        VethResponseBody::Ready { boot: self.boot, names, missing: Vec::new(), warnings }
    }

    fn answer(&mut self, number: u64, body: VethResponseBody) {
        self.send(number, &body, None);
    }

    fn send_event(&mut self, body: VethResponseBody) {
        self.send(0, &body, None);
    }

    /// Sends a message to the server. A server that does not read is disconnected.
    fn send(&mut self, number: u64, body: &VethResponseBody, fd: Option<&OwnedFd>) {
        if self.client.as_ref().is_some_and(|client| !client.send(number, body, fd)) {
            self.client = None;
        }
    }

    fn serve(&mut self) {
        while self.client.is_some() || self.manager.in_use() {
            let ready = self.wait();
            if ready.listener {
                self.accept();
            }
            if ready.client {
                self.handle_requests();
            }
            if ready.nflog {
                self.manager.read_denied_packets();
            }
            if ready.interfaces {
                self.handle_interface_events();
            }
            if ready.host {
                self.handle_host_events();
            }
            if ready.tables && self.manager.gateway.drain_table_events() {
                self.reconcile_tables();
            }
            if ready.proxy {
                self.read_proxy(None);
            }
            if ready.candidate {
                self.handle_candidate();
            }
            self.run_due();
        }
    }

    /// Runs the timed work that is due.
    fn run_due(&mut self) {
        let now = Instant::now();
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if self.manager.denials_due_in().is_some_and(|left| left.is_zero()) {
            self.send_denials();
        }
        if let Some(repair) = self.manager.unreported_repair.take() {
            self.report_repair(repair);
        }
        if is_due(self.start_proxy_at) {
            self.start_proxy();
        }
        if is_due(self.remove_stale_at) {
            self.remove_stale_at = None;
            if self.manager.has_stale_elements() && self.manager.remove_stale_elements().is_err() {
                self.reconcile_tables();
            }
        }
        // Pairs are removed by the server, or with their sandbox.
        if self.manager.has_stale_elements() {
            self.remove_stale_at.get_or_insert(now + STALE_TIME);
        }
        if is_due(self.prepare_at) {
            self.prepare_at = None;
            let prepared = self.manager.prepare_some();
            if self.manager.needs_prepared() {
                let pause = if prepared.is_ok() { PREPARE_PAUSE } else { RETRY_PAUSE };
                self.prepare_at = Some(Instant::now() + pause);
            }
        }
        if self.reconcile_at <= now {
            self.reconcile_at = now + RECONCILE_INTERVAL;
            self.reconcile_veths();
            self.reconcile_host_addresses();
            self.reconcile_uplink();
            self.reconcile_tables();
        }
    }
}

/// A random number, to tell this process from earlier ones.
fn random() -> u64 {
    let mut bytes = [0_u8; 8];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_or_else(|_| u64::from(std::process::id()), |()| u64::from_ne_bytes(bytes))
}
