//! One value for each kind of packet between the server and the launcher, and between the server
//! and the process that owns the veth pairs, and between the latter and the egress proxy; and data
//! frames.

use crate::Row;
use isolet_wire::credential::{Credential, Secret};
use isolet_wire::launcher::{Grant, LauncherRequest, LauncherResponse, Limits, Root, Scope, Spec};
use isolet_wire::network::{Guard, NetworkDenial, Policy, ProxyRequest, ProxyResponse, Rule};
use isolet_wire::response::{STDERR, STDOUT};
use isolet_wire::veth::{
    AssignedVeth, Counters, VethRequest, VethRequestBody, VethResponse, VethResponseBody,
    VethSettings,
};
use std::net::Ipv4Addr;

fn text(text: &str) -> String {
    text.to_owned()
}

pub(crate) fn orders() -> Vec<Row<LauncherRequest>> {
    let limits = Limits { memory_mib: 1024, cpu_millis: 1000, pids: 512, disk_mib: 64 };
    let root = Root {
        layers: vec![text("layers/one/tree")],
        cwd: Some(text("/app")),
        uid: 1000,
        gid: 1000,
    };
    let spec = Spec {
        name: text("abc123"),
        slot: 7,
        hostname: text("demo"),
        limits,
        root: Some(root),
        directory_exists: true,
        has_veth: true,
        id_base: None,
        snapshot_layers: Vec::new(),
    };
    let least = Spec { root: None, directory_exists: false, has_veth: false, ..spec.clone() };
    let scope = Scope {
        name: text("abc123"),
        slot: 7,
        session: text("dev"),
        grants: vec![
            Grant { path: String::new(), write: false },
            Grant { path: text("out"), write: true },
        ],
        memory_mib: 1024,
        user: (1000, 1000),
        strict: true,
    };
    vec![
        ("launch", LauncherRequest::Launch(spec)),
        ("launch_least", LauncherRequest::Launch(least)),
        ("scope", LauncherRequest::Scope(scope)),
    ]
}

pub(crate) fn reports() -> Vec<Row<LauncherResponse>> {
    let name = || text("abc123");
    vec![
        ("ready", LauncherResponse::Ready { missing: vec![text("no overlayfs")] }),
        ("granted", LauncherResponse::Granted { name: name() }),
        ("launched", LauncherResponse::Launched { name: name(), pid: 4711 }),
        ("failed", LauncherResponse::Failed { name: name(), step: text("mount root"), errno: 28 }),
    ]
}

fn policy() -> Policy {
    let rules = |all: &[&str]| all.iter().map(|one| Rule::parse(one).expect("a rule")).collect();
    Policy {
        allow: rules(&["*", "web.example:443", "*.example", "198.51.100.0/24", "[2001:db8::1]:80"]),
        deny: rules(&["10.0.0.0/8"]),
    }
}

fn credential() -> Credential {
    Credential {
        to: Rule::parse("api.example").expect("a rule"),
        header: Some(text("Authorization")),
        placeholder: Some(text("TOKEN")),
        value: Secret::new(text("a value for tests")),
    }
}

fn denial() -> NetworkDenial {
    NetworkDenial {
        host: text("evil.example"),
        port: Some(443),
        protocol: text("tcp"),
        rule: text("default"),
        times: 2,
    }
}

pub(crate) fn link_orders() -> Vec<Row<VethRequest>> {
    let settings = VethSettings {
        range: [10, 231, 0, 0].into(),
        connections_max: 4096,
        opened: vec![([10, 0, 0, 0].into(), 8)],
        resolvers: vec!["127.0.0.1:53".parse().expect("an address")],
    };
    let name = || text("abc123");
    let all = vec![
        ("begin", VethRequestBody::Begin(settings)),
        ("take", VethRequestBody::Take { name: name(), policy: policy() }),
        ("attach", VethRequestBody::Attach { name: name(), policy: Policy::default() }),
        ("set", VethRequestBody::Set { id: 5, policy: policy() }),
        ("release", VethRequestBody::Release { id: 5 }),
        ("list", VethRequestBody::List { after: 0 }),
        ("counters", VethRequestBody::Counters { id: 5 }),
        ("settle", VethRequestBody::Settle),
        ("lend", VethRequestBody::SetCredentials { id: 5, credentials: vec![credential()] }),
    ];
    all.into_iter().map(|(kind, ask)| (kind, VethRequest { number: 300, body: ask })).collect()
}

pub(crate) fn link_told() -> Vec<Row<VethResponse>> {
    let name = || text("abc123");
    let standing = || AssignedVeth { id: 5, address: [10, 231, 0, 9].into(), name: name() };
    let counters =
        Counters { out_bytes: 1, back_bytes: 2, out_packets: 3, back_packets: 4, refused: 5 };
    let refused = denial();
    let ready = VethResponseBody::Ready {
        boot: 99,
        names: true,
        missing: vec![],
        warnings: vec![text("slow")],
    };
    let all = vec![
        ("ready", ready),
        ("taken", VethResponseBody::Taken(standing())),
        ("done", VethResponseBody::Done),
        ("listed", VethResponseBody::Listed(vec![standing()])),
        ("counted", VethResponseBody::Counted(counters)),
        ("failed", VethResponseBody::Failed { reason: text("no address is left") }),
        ("refused", VethResponseBody::Refused { name: name(), refused }),
        ("gone", VethResponseBody::Gone { name: name(), id: 5 }),
        ("repaired", VethResponseBody::Repaired { description: text("the table was flushed") }),
        ("lent", VethResponseBody::CredentialsSet { certificate: Some(text("PEM")) }),
        ("authority", VethResponseBody::Authority { name: name(), certificate: text("PEM") }),
    ];
    all.into_iter().map(|(kind, tell)| (kind, VethResponse { number: 300, body: tell })).collect()
}

/// The address of a sandbox in messages of the egress proxy.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 9);

pub(crate) fn proxy_orders() -> Vec<Row<ProxyRequest>> {
    let guard = Guard {
        host: vec![Ipv4Addr::new(203, 0, 113, 1)],
        opened: vec![(Ipv4Addr::new(10, 0, 0, 0), 8)],
    };
    let resolvers = vec!["127.0.0.1:53".parse().expect("an address")];
    let policy =
        Policy { allow: vec![Rule::parse("web.example:443").expect("a rule")], deny: Vec::new() };
    let credentials = vec![credential()];
    vec![
        ("guard", ProxyRequest::Guard { guard, resolvers }),
        ("set", ProxyRequest::Set { address: ADDRESS, policy }),
        ("lend", ProxyRequest::SetCredentials { address: ADDRESS, credentials, tls: true }),
        ("forget", ProxyRequest::Forget { address: ADDRESS }),
        ("settle", ProxyRequest::Settle { number: 300 }),
    ]
}

pub(crate) fn proxy_told() -> Vec<Row<ProxyResponse>> {
    vec![
        ("ready", ProxyResponse::Ready),
        ("refused", ProxyResponse::Refused { address: ADDRESS, refused: denial() }),
        ("authority", ProxyResponse::Authority { address: ADDRESS, certificate: text("PEM") }),
        ("settled", ProxyResponse::Settled { number: 300 }),
        ("carried", ProxyResponse::Carried { address: ADDRESS, out: 1, back: 70_000 }),
    ]
}

/// Stream, offset, id and bytes of a data frame, after its name.
pub(crate) type DataRow = Row<(u8, u64, &'static str, &'static [u8])>;

pub(crate) fn data() -> Vec<DataRow> {
    vec![
        ("output", (STDOUT, 70_000, "c1", b"hello\n")),
        ("errors", (STDERR, 0, "abc/c1", b"\xff\x00")),
        ("background", (STDOUT, 1 << 40, "", b"job")),
        ("contents", (0, 0, "", b"of a file")),
    ]
}
