//! The fleet that this server is a node of: its certificates, etcd, its registration, and the address
//! at which other nodes reach it.

use super::finding::Finding;
use super::peers;
use crate::admin::client::AdminClient;
use isolet_cluster::etcd::{Etcd, EtcdError, EtcdSettings, MemberStatus};
use isolet_cluster::membership::Operator;
use isolet_cluster::model::{ClusterSettings, Member, Members, NodeState};
use isolet_peer::PeerFiles;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::time::timeout;

const GROUP: &str = "fleet";
/// Time limit of each call to etcd, and of a connection to the own address.
const WAIT: Duration = Duration::from_secs(3);
/// A slower answer delays every new sandbox noticeably, and takes a part of the shortest lease.
const SLOW: Duration = Duration::from_millis(250);
const ETCD: &str = "etcd";
const CLUSTER: &str = "etcd cluster";

/// Checks a node, whether or not its server runs. Other checks must come before: this one may start
/// threads, to look up names.
pub(super) fn check(settings: Option<&ClusterSettings>, data_dir: &Path) -> Vec<Finding> {
    let Some(settings) = settings else { return Vec::new() };
    let mut all = peers::check(&PeerFiles::in_directory(&settings.peer_dir), Some(&settings.node));
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            all.push(Finding::unchecked(GROUP, ETCD, &error.to_string(), "run it again"));
            return all;
        }
    };
    // Only the server's own user and root may ask.
    let is_running = AdminClient::connect(data_dir).ok().map(|server| server.is_some());
    all.extend(runtime.block_on(node(settings, data_dir, is_running)));
    // The lookup of a name may still block a thread.
    runtime.shutdown_background();
    all
}

async fn node(
    settings: &ClusterSettings,
    data_dir: &Path,
    is_running: Option<bool>,
) -> Vec<Finding> {
    let mut all = Vec::new();
    match Etcd::new(settings.etcd.clone()) {
        Err(error) => all.push(unusable(&error)),
        Ok(etcd) => {
            let etcd = etcd.with_timeout(WAIT);
            let statuses = statuses(&settings.etcd).await;
            let answers = statuses.iter().any(|status| status.answer.is_ok());
            all.extend(statuses.iter().map(|status| endpoint(status, answers)));
            if answers {
                all.push(cluster(&etcd, &statuses).await);
                all.extend(records(settings, &etcd, data_dir, is_running).await);
            }
        }
    }
    all.push(match is_running {
        Some(is_running) => address(settings, is_running).await,
        None => Finding::needs_root(GROUP, "address"),
    });
    all
}

fn unusable(error: &EtcdError) -> Finding {
    let remedy = "correct etcd, etcd_ca_file, etcd_cert_file and etcd_key_file in [cluster]";
    Finding::failure(GROUP, ETCD, error.to_string(), remedy)
}

/// What one endpoint says.
struct EndpointStatus {
    url: String,
    answer: Result<(MemberStatus, Duration), EtcdError>,
}

async fn statuses(settings: &EtcdSettings) -> Vec<EndpointStatus> {
    let asked = settings.endpoints.iter().map(async |url| {
        let one = EtcdSettings { endpoints: vec![url.clone()], tls: settings.tls.clone() };
        EndpointStatus { url: url.clone(), answer: status(one).await }
    });
    futures_util::future::join_all(asked).await
}

async fn status(settings: EtcdSettings) -> Result<(MemberStatus, Duration), EtcdError> {
    let etcd = Etcd::new(settings)?.with_timeout(WAIT);
    // The first call makes the connection, the second one shows how long etcd takes.
    first_of(etcd.statuses().await)?;
    let began = Instant::now();
    let status = first_of(etcd.statuses().await)?;
    Ok((status, began.elapsed()))
}

fn first_of(
    all: Vec<(String, Result<MemberStatus, EtcdError>)>,
) -> Result<MemberStatus, EtcdError> {
    let none = || EtcdError::Settings("no endpoint".to_owned());
    all.into_iter().next().map_or_else(|| Err(none()), |(_, status)| status)
}

fn endpoint(status: &EndpointStatus, others_answer: bool) -> Finding {
    let url = &status.url;
    let (member, took) = match &status.answer {
        Ok(answer) => answer,
        Err(error) => {
            let message = format!("{url}: {error}");
            let remedy =
                "start this member of etcd, or correct `etcd` and the certificates in [cluster]";
            return match others_answer {
                true => Finding::warning(GROUP, ETCD, message, remedy),
                false => Finding::failure(GROUP, ETCD, message, remedy),
            };
        }
    };
    let ms = took.as_secs_f64() * 1000.0;
    let mib = member.database_bytes.div_ceil(1 << 20);
    let version = &member.version;
    let message = format!("{url}: version {version}, answers in {ms:.1} ms, database of {mib} MiB");
    if is_too_old(version) {
        Finding::failure(GROUP, ETCD, message, "upgrade etcd to 3.4 or later")
    } else if *took > SLOW {
        let remedy = "look at the disk of this member and at the network between";
        Finding::warning(GROUP, ETCD, message, remedy)
    } else {
        Finding::ok(GROUP, ETCD, message)
    }
}

/// Whether a version is before 3.4. One that cannot be read is none of those.
fn is_too_old(version: &str) -> bool {
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    matches!((parts.next(), parts.next()), (Some(major), Some(minor)) if (major, minor) < (3, 4))
}

async fn cluster(etcd: &Etcd, statuses: &[EndpointStatus]) -> Finding {
    let answers: Vec<&MemberStatus> = statuses
        .iter()
        .filter_map(|one| one.answer.as_ref().ok())
        .map(|(status, _)| status)
        .collect();
    let failure = |message: String, remedy: &str| Finding::failure(GROUP, CLUSTER, message, remedy);
    if answers.iter().any(|one| one.cluster_id != answers[0].cluster_id) {
        let message = "the endpoints belong to different clusters of etcd".to_owned();
        return failure(message, "name only members of one cluster in `etcd` of [cluster]");
    }
    if answers.iter().all(|one| one.leader == 0) {
        let message = "no member knows a leader, so nothing can be written".to_owned();
        return failure(message, "start the other members: a majority must run");
    }
    if let Some(alarm) = answers.iter().find_map(|one| one.alarms.first()) {
        let remedy =
            "see `etcdctl alarm list`; a full database needs compact, defrag and alarm disarm";
        return failure(format!("etcd reports: {alarm}"), remedy);
    }
    match etcd.members().await {
        Err(error) => Finding::unchecked(GROUP, CLUSTER, &error.to_string(), "start more members"),
        Ok(members) => size(members.len()),
    }
}

fn size(members: usize) -> Finding {
    let may_fail = members.saturating_sub(1) / 2;
    let message = format!("members {members}; {may_fail} of them may fail");
    match members {
        0..=2 => Finding::warning(GROUP, CLUSTER, message, "run three or five members"),
        _ if members.is_multiple_of(2) => {
            let remedy = "run an odd number of members: one more or less tolerates the same";
            Finding::warning(GROUP, CLUSTER, message, remedy)
        }
        _ => Finding::ok(GROUP, CLUSTER, message),
    }
}

/// What etcd holds about the fleet and about this node.
async fn records(
    settings: &ClusterSettings,
    etcd: &Etcd,
    data_dir: &Path,
    is_running: Option<bool>,
) -> Vec<Finding> {
    let operator = Operator::new(etcd.clone(), settings.keys.clone());
    let members = match operator.members().await {
        Ok(members) => members,
        Err(error) => {
            let remedy = "give the user of etcd_cert_file the role readwrite on the prefix";
            return vec![Finding::failure(GROUP, "prefix", error.to_string(), remedy)];
        }
    };
    let identity = isolet_fleet::recorded_identity(data_dir).ok();
    let registration = match identity.zip(is_running) {
        Some((identity, is_running)) => {
            let own = members.get(&settings.node);
            registration(settings, own, identity.as_deref(), is_running)
        }
        None => Finding::needs_root(GROUP, "registration"),
    };
    let own = members.get(&settings.node).map(|own| own.record.limits_digest.clone());
    let mut all = vec![prefix(settings, &members), registration];
    all.extend(own.map(|digest| limits(&members, &digest)));
    all
}

/// Whether all nodes have the same limits of tenants in their configuration files.
fn limits(members: &Members, digest: &str) -> Finding {
    let others = members.with_other_limits(digest);
    if others.is_empty() {
        return Finding::ok(GROUP, "limits", "all nodes have the limits of this one".to_owned());
    }
    let names: Vec<String> = others.iter().map(ToString::to_string).collect();
    let message = format!("other limits or quotas than on this node: {}", names.join(", "));
    let remedy = "make the tables about limits, quotas and tenants equal on all nodes";
    Finding::warning(GROUP, "limits", message, remedy)
}

fn prefix(settings: &ClusterSettings, members: &Members) -> Finding {
    let ready = members.iter().filter(|member| member.state == NodeState::Ready).count();
    let prefix = settings.keys.prefix();
    let message = format!("{prefix}: nodes {}, of which {ready} hold their lease", members.len());
    match members.skipped() {
        [] => Finding::ok(GROUP, "prefix", message),
        [first, ..] => {
            let count = members.skipped().len();
            let message = format!(
                "{message}; keys that cannot be used {count}, such as {}: {}",
                first.key, first.reason
            );
            let remedy = "upgrade this node if a later version wrote them; delete them otherwise";
            Finding::warning(GROUP, "prefix", message, remedy)
        }
    }
}

fn registration(
    settings: &ClusterSettings,
    own: Option<&Member>,
    identity: Option<&str>,
    is_running: bool,
) -> Finding {
    let check = "registration";
    let name = &settings.node;
    let ok = |message: String| Finding::ok(GROUP, check, message);
    let Some(member) = own else {
        return match is_running {
            false => {
                ok(format!("no node has the name {name}; the server registers it at its start"))
            }
            true => Finding::failure(
                GROUP,
                check,
                format!("the server runs, and no node has the name {name}"),
                "restart the server: it was started with other settings, or the node was removed",
            ),
        };
    };
    let record = &member.record;
    let Some(registered) = member.registration else {
        let since =
            if member.state == NodeState::Dead { "declared dead" } else { "without a lease" };
        return match (is_running, member.state) {
            (true, _) => Finding::failure(
                GROUP,
                check,
                format!("the server runs, but node {name} is {since}"),
                "look for `lease` in the log of the server; it registers again once it reaches etcd",
            ),
            (false, NodeState::Dead) => Finding::warning(
                GROUP,
                check,
                format!("node {name} was declared dead"),
                "start the server if the node shall return, which makes it a member again",
            ),
            (false, _) => {
                ok(format!("node {name} is {since}; the server registers it at its start"))
            }
        };
    };
    if identity != Some(record.identity.as_str()) {
        return Finding::failure(
            GROUP,
            check,
            format!("the name {name} is taken by another data directory, at {}", record.address),
            "give this node another `node` in [cluster] and a certificate for it, or stop the other one",
        );
    }
    let message = format!("node {name} is registered since revision {}", registered.revision());
    if member.cordoned {
        let remedy = format!("`isolet node uncordon {name}`, once it may take new sandboxes");
        return Finding::warning(GROUP, check, format!("{message}, and cordoned"), remedy);
    }
    let is_same = record.address == settings.advertise
        && record.region == settings.region
        && record.labels == settings.labels;
    match is_same {
        true => ok(message),
        false => Finding::warning(
            GROUP,
            check,
            format!("{message}, with another address, region or labels than in the settings"),
            "restart the server with these settings",
        ),
    }
}

/// The address that other nodes use.
async fn address(settings: &ClusterSettings, is_running: bool) -> Finding {
    let check = "address";
    let advertised = &settings.advertise;
    let remedy = "correct `advertise` and `listen` in [cluster]";
    let failure = |message: String| Finding::failure(GROUP, check, message, remedy);
    let found = match timeout(WAIT, lookup_host(advertised.as_str())).await {
        Ok(Ok(mut found)) => found.next(),
        Ok(Err(error)) => return failure(format!("{advertised}: {error}")),
        Err(_) => return failure(format!("{advertised}: the name is not resolved in time")),
    };
    let Some(found) = found else { return failure(format!("{advertised} has no address")) };
    if is_running {
        return match timeout(WAIT, TcpStream::connect(found)).await {
            Ok(Ok(_)) => Finding::ok(GROUP, check, format!("{advertised} accepts connections")),
            Ok(Err(error)) => failure(format!("{advertised}: {error}")),
            Err(_) => failure(format!("{advertised} does not answer; look at the firewall")),
        };
    }
    let listen = settings.listen;
    if let Err(error) = TcpListener::bind(listen).await {
        return failure(format!("cannot listen on {listen} for other nodes: {error}"));
    }
    match TcpListener::bind(SocketAddr::new(found.ip(), 0)).await {
        Ok(_) => {
            let message = format!("{advertised} is an address of this machine; no server runs");
            Finding::ok(GROUP, check, message)
        }
        Err(_) => {
            let reason = format!("{advertised} is no address of this machine, and no server runs");
            Finding::unchecked(GROUP, check, &reason, "run it again while the server runs")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn versions_and_sizes_are_judged() {
        assert!(is_too_old("3.3.25") && is_too_old("2.9"));
        assert!(!is_too_old("3.4.23") && !is_too_old("3.10.0") && !is_too_old("4.0"));
        assert!(!is_too_old("unknown"));
        let status = |members| size(members).status;
        assert_eq!([1, 2, 4].map(status), [Status::Warning; 3]);
        assert_eq!([3, 5].map(status), [Status::Ok; 2]);
        assert!(size(5).message.contains("2 of them may fail"));
    }
}
