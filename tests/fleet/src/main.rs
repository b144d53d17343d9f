//! `make fleet`: a fleet on this machine for a person, until Ctrl-C.
#![forbid(unsafe_code)]

use clap::Parser;
use isolet_fleet_tests::addresses::API_PORT;
use isolet_fleet_tests::relay::Relay;
use isolet_fleet_tests::{FleetOptions, KEY, LocalFleet};
use isolet_kit::process;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Start a fleet on this machine: three nodes, a three-member etcd and an S3 server, each in a network
/// namespace. Needs root. Everything ends with Ctrl-C, and nothing is kept.
#[derive(Parser)]
#[command(
    name = "make fleet",
    after_help = "\
Run it as `make fleet`, which builds the programs and fetches etcd and the S3 server. Pass flags as
`make fleet FLEET='--first-port 7401'`. ISOLET_PROGRAMS names another directory of the programs."
)]
struct Args {
    /// Loopback port of the first node; the others follow
    #[arg(long, default_value_t = 7301, value_parser = clap::value_parser!(u16).range(1..=65_530))]
    first_port: u16,
    /// Lifetime of a node's lease, in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(5..=300))]
    lease_ttl_s: u32,
    /// Start three servers without a table [cluster], to compare
    #[arg(long)]
    unclustered: bool,
    /// Start no S3 server
    #[arg(long)]
    no_store: bool,
}

/// How often the servers are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// How long a server that has ended stays away.
const RESTART_AFTER: Duration = Duration::from_secs(3);
/// The number of nodes.
const NODES: u16 = 3;

fn main() -> ExitCode {
    let args = Args::parse();
    let mut listeners = Vec::new();
    for port in args.first_port..args.first_port + NODES {
        // Bound before this thread leaves the machine's own network namespace.
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(listener) => listeners.push(listener),
            Err(error) => {
                eprintln!(
                    "cannot listen on 127.0.0.1:{port} ({error}); choose another --first-port"
                );
                return ExitCode::FAILURE;
            }
        }
    }
    // One thread, because a program with several cannot move into a namespace as a whole.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (Ok(runtime), true) = (runtime, rustix::process::geteuid().is_root()) else {
        eprintln!("this needs root, to create network namespaces and sandboxes");
        return ExitCode::FAILURE;
    };
    let signals = runtime.block_on(async {
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal)
    });
    println!("starting etcd, the S3 server and three nodes …");
    let mut fleet = LocalFleet::with(&FleetOptions {
        is_clustered: !args.unclustered,
        has_store: !args.no_store,
        lease_ttl_s: args.lease_ttl_s,
        warm_pool: 2,
        ..FleetOptions::default()
    });
    let relays: Vec<Relay> = listeners
        .into_iter()
        .zip(&fleet.nodes)
        .map(|(listener, node)| {
            let to = SocketAddr::from((node.address, API_PORT));
            Relay::start(listener, to, Duration::ZERO)
        })
        .collect();
    greet(&fleet, args.first_port);
    runtime.block_on(async {
        let [Ok(mut int), Ok(mut term), Ok(mut hup)] = signals else { return };
        tokio::select! {
            _ = int.recv() => {}
            _ = term.recv() => {}
            _ = hup.recv() => {}
            () = keep_running(&mut fleet) => {}
        }
    });
    println!("\nending …");
    drop(relays);
    drop(fleet);
    println!("everything has ended");
    ExitCode::SUCCESS
}

/// Starts servers again that have ended.
async fn keep_running(fleet: &mut LocalFleet) {
    loop {
        tokio::time::sleep(LOOK).await;
        for node in &mut fleet.nodes {
            if process::alive(node.server.pid()) {
                continue;
            }
            println!("node {} has ended; it is started again in {RESTART_AFTER:?}", node.name);
            tokio::time::sleep(RESTART_AFTER).await;
            node.server.restart();
            println!("node {} runs again: pid {}", node.name, node.server.pid());
        }
    }
}

fn greet(fleet: &LocalFleet, first_port: u16) {
    let ports = first_port..first_port + NODES;
    println!("\nkey of the tenant \"default\" on every node: {KEY}");
    for (node, port) in fleet.nodes.iter().zip(ports) {
        let pid = node.server.pid();
        let data = node.server.data();
        let data = data.display();
        println!("node {}: http://127.0.0.1:{port}   pid {pid}   data {data}", node.name);
    }
    if let Some(etcd) = &fleet.etcd {
        let files = etcd.client_files();
        println!(
            "etcd: nsenter --net={} env ETCDCTL_API=3 target/clients/etcd/usr/bin/etcdctl \\\n  \
             --endpoints {} --cacert {} --cert {} --key {} \\\n  get --prefix isolet/ --keys-only",
            fleet.switch.clients().path().display(),
            etcd.urls().join(","),
            files.ca.display(),
            files.certificate.display(),
            files.key.display()
        );
    }
    let second = first_port + 1;
    let program = isolet_kit::programs().join("isolet");
    let isolet = program.display();
    println!(
        "\nTry (docs/fleet.md, \"Try it on one machine\"):\n  \
         export ISOLET_API_KEY={KEY}\n  \
         ISOLET_URL=http://127.0.0.1:{first_port} {isolet} exec demo 'echo made here >/tmp/file'\n  \
         ISOLET_URL=http://127.0.0.1:{second} {isolet} exec demo 'cat /tmp/file'\n  \
         ISOLET_URL=http://127.0.0.1:{second} {isolet} ls\n\n\
         A node that ends is started again. Ctrl-C ends everything."
    );
}
