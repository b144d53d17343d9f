//! The fixture of the tests: a network, the process that owns the veth pairs, and programs that run
//! in the namespaces of sandboxes.

use isolet_jail::{Config, VethClient, VethEvent, VethSettings};
use isolet_kit::net::{self, World};
use isolet_kit::{SOON, process, wait_until};
use isolet_wire::network::{NetworkDenial, Policy, Rule};
use isolet_wire::veth::AssignedVeth;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, channel};
use tempfile::TempDir;

/// A host of its own with the process that owns veth pairs.
pub(crate) struct VethFixture {
    pub(crate) client: VethClient,
    pub(crate) events: Receiver<VethEvent>,
    pub(crate) config: Config,
    pub(crate) world: World,
    _folder: TempDir,
}

impl VethFixture {
    pub(crate) fn new() -> Self {
        Self::with(VethSettings::default())
    }

    pub(crate) fn with(settings: VethSettings) -> Self {
        Self::beside(settings, &[])
    }

    /// With these programs in the directory of the launcher.
    pub(crate) fn beside(settings: VethSettings, programs: &[&str]) -> Self {
        let world = World::new();
        let folder = tempfile::tempdir().expect("a directory");
        let mut config = Config::beside(folder.path()).expect("own path is known");
        config.launcher = folder.path().join("isolet-launcher");
        let link = |from: &std::path::Path, name: &str| {
            std::os::unix::fs::symlink(from, folder.path().join(name)).expect("a link");
        };
        link(env!("CARGO_BIN_EXE_isolet-launcher").as_ref(), "isolet-launcher");
        programs.iter().for_each(|name| link(&isolet_kit::programs().join(name), name));
        let Connection { client, events } = start(&config, settings);
        Self { client, events, config, world, _folder: folder }
    }

    /// Connects again, as a server does that was killed and started again.
    pub(crate) fn reconnect(&mut self) {
        let Connection { client, events } = start(&self.config, VethSettings::default());
        self.client = client;
        self.events = events;
    }

    /// The id of the process that owns the pairs.
    pub(crate) fn owner(&self) -> i32 {
        isolet_kit::veth::find_manager(&self.config.data_dir).expect("the process runs")
    }

    /// The network namespace of the gateway.
    pub(crate) fn gateway_netns(&self) -> OwnedFd {
        isolet_kit::veth::gateway_netns(self.owner()).expect("the gateway has a namespace")
    }

    /// Claims a pair with these rules.
    pub(crate) fn claim(&self, allow: &[&str], deny: &[&str]) -> (AssignedVeth, OwnedFd) {
        self.client.claim("sandbox", &policy(allow, deny)).expect("a pair")
    }

    /// The denials until now.
    pub(crate) fn denials(&self) -> Vec<NetworkDenial> {
        self.client.settle().expect("all denials are reported");
        let all = self.events.try_iter().filter_map(|event| match event {
            VethEvent::Refused { refused, .. } => Some(refused),
            _ => None,
        });
        all.collect()
    }

    /// Waits for an event for which `matches` is true; events before it are dropped.
    pub(crate) fn wait(&self, matches: impl Fn(&VethEvent) -> bool) -> VethEvent {
        wait_until("the event comes", SOON, || self.events.try_iter().find(|event| matches(event)))
    }
}

struct Connection {
    client: VethClient,
    events: Receiver<VethEvent>,
}

fn start(config: &Config, settings: VethSettings) -> Connection {
    let (sender, events) = channel();
    let client =
        VethClient::start(config, settings, move |it| drop(sender.send(it))).expect("it starts");
    Connection { client, events }
}

impl Drop for VethFixture {
    fn drop(&mut self) {
        if let Some(owner) = process::all().into_iter().find(|pid| {
            let data = self.config.data_dir.display().to_string();
            process::arguments(*pid).contains(&data) && process::alive(*pid)
        }) {
            process::kill(owner);
        }
    }
}

pub(crate) fn policy(allow: &[&str], deny: &[&str]) -> Policy {
    let rules = |texts: &[&str]| texts.iter().map(|text| Rule::parse(text).expect(text)).collect();
    Policy { allow: rules(allow), deny: rules(deny) }
}

/// The output of a Python program in a network namespace.
pub(crate) fn says(network: &OwnedFd, program: &str) -> String {
    let output = net::python(network, program);
    let errors = String::from_utf8_lossy(&output.stderr);
    format!("{}{errors}", String::from_utf8_lossy(&output.stdout)).trim_end().to_owned()
}

/// A Python program that connects to each address and prints a line with the result.
pub(crate) fn tries(places: &[(&str, u16)]) -> String {
    format!(
        "import socket\nfor place in {places:?}:\n    try:\n        \
         it = socket.create_connection(place, timeout=3)\n        \
         print(it.recv(99).decode().strip() or 'open')\n    \
         except OSError as error:\n        print(type(error).__name__, error.errno)\n"
    )
}
