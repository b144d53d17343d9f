//! What the tests stand on: a world, the process that owns links, and programs in its networks.

use isolet_jail::{Config, VethClient, VethEvent, VethSettings};
use isolet_kit::net::{self, World};
use isolet_kit::{SOON, process, wait_until};
use isolet_wire::network::{Policy, Refused, Rule};
use isolet_wire::veth::AssignedVeth;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, channel};
use tempfile::TempDir;

/// Veth pairs on a host of their own.
pub(crate) struct Given {
    pub(crate) links: VethClient,
    pub(crate) news: Receiver<VethEvent>,
    pub(crate) config: Config,
    pub(crate) world: World,
    _folder: TempDir,
}

impl Given {
    pub(crate) fn new() -> Self {
        Self::with(VethSettings::default())
    }

    pub(crate) fn with(settings: VethSettings) -> Self {
        Self::beside(settings, &[])
    }

    /// With these programs beside the launcher.
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
        let (links, news) = start(&config, settings);
        Self { links, news, config, world, _folder: folder }
    }

    /// As a server does that was killed and started again.
    pub(crate) fn again(&mut self) {
        (self.links, self.news) = start(&self.config, VethSettings::default());
    }

    /// The process that owns the links.
    pub(crate) fn keeper(&self) -> i32 {
        isolet_kit::veth::find_manager(&self.config.data_dir).expect("it runs")
    }

    /// The namespace between sandboxes and host.
    pub(crate) fn between(&self) -> OwnedFd {
        isolet_kit::veth::gateway_netns(self.keeper()).expect("it has one")
    }

    /// A link with these rules.
    pub(crate) fn take(&self, allow: &[&str], deny: &[&str]) -> (AssignedVeth, OwnedFd) {
        self.links.claim("sandbox", &policy(allow, deny)).expect("a link")
    }

    /// Every refusal until now.
    pub(crate) fn refusals(&self) -> Vec<Refused> {
        self.links.settle().expect("settles");
        let news = self.news.try_iter();
        let all = news.filter_map(|news| match news {
            VethEvent::Refused { refused, .. } => Some(refused),
            _ => None,
        });
        all.collect()
    }

    /// Waits for news.
    pub(crate) fn wait(&self, what: impl Fn(&VethEvent) -> bool) -> VethEvent {
        wait_until("news come", SOON, || self.news.try_iter().find(|news| what(news)))
    }
}

fn start(config: &Config, settings: VethSettings) -> (VethClient, Receiver<VethEvent>) {
    let (sender, news) = channel();
    let links =
        VethClient::start(config, settings, move |it| drop(sender.send(it))).expect("it starts");
    (links, news)
}

impl Drop for Given {
    fn drop(&mut self) {
        if let Some(keeper) = process::all().into_iter().find(|pid| {
            let data = self.config.data_dir.display().to_string();
            process::arguments(*pid).contains(&data) && process::alive(*pid)
        }) {
            process::kill(keeper);
        }
    }
}

pub(crate) fn policy(allow: &[&str], deny: &[&str]) -> Policy {
    let rules = |texts: &[&str]| texts.iter().map(|text| Rule::parse(text).expect(text)).collect();
    Policy { allow: rules(allow), deny: rules(deny) }
}

/// What a Python program says in a network.
pub(crate) fn says(network: &OwnedFd, program: &str) -> String {
    let output = net::python(network, program);
    let errors = String::from_utf8_lossy(&output.stderr);
    format!("{}{errors}", String::from_utf8_lossy(&output.stdout)).trim_end().to_owned()
}

/// A program that connects to each place and says what came of it, a line each.
pub(crate) fn tries(places: &[(&str, u16)]) -> String {
    format!(
        "import socket\nfor place in {places:?}:\n    try:\n        \
         it = socket.create_connection(place, timeout=3)\n        \
         print(it.recv(99).decode().strip() or 'open')\n    \
         except OSError as error:\n        print(type(error).__name__, error.errno)\n"
    )
}
