//! `isolet serve`: starts the server, prints its address, and shuts it down gracefully.

use crate::config::{self, DATA_DIR, LISTEN, Overrides, ServerSettings};
use crate::logging::{self, LogControl, LogSettings};
use crate::telemetry::Telemetry;
use crate::tls::TlsFiles;
use crate::{admin, doctor};
use anyhow::{Context, Result, bail};
use clap::Parser;
use isolet_build::Builder;
use isolet_fleet::Node;
use isolet_http::fleet::Fleet;
use isolet_http::{Options, ServerNames};
use isolet_sandbox::{Keys, NewKey, Service, TenantId};
use isolet_webhook::{FleetRecords, Webhooks};
use std::fs::OpenOptions;
use std::io::{ErrorKind, IsTerminal, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

/// How long shutting down the sandbox service may take.
const STOP_WAIT: Duration = Duration::from_millis(1500);

/// How long to wait for a previous server that is still shutting down to release the address.
const RELEASE_WAIT: Duration = Duration::from_secs(1);
/// The pause between two attempts to listen.
const RELEASE_LOOK: Duration = Duration::from_millis(10);

/// Flags of the server.
#[derive(Parser)]
#[command(after_help = "\
A flag wins over an ISOLET_* variable, and a variable over the configuration file
(config/isolet.toml lists all settings). At its first start, a server without keys creates one
and stores it in DATA/key (mode 0600). ISOLET_API_KEY adds a key for the tenant `default`.

Examples:
  isolet serve --listen 127.0.0.1:7300 --data-dir /var/lib/isolet
  isolet serve --warm-pool-size 8
  isolet serve --listen 0.0.0.0:7300 --tls-cert fullchain.pem --tls-key privkey.pem --host box.example
  isolet serve --metrics-listen 127.0.0.1:9600
  isolet serve --log-json --otlp-endpoint http://127.0.0.1:4318
  isolet serve --print-config")]
pub(crate) struct Args {
    #[command(flatten)]
    settings: Overrides,
    /// Write the log to standard error as JSON, one object in each line
    #[arg(long, env = "ISOLET_LOG_JSON", value_parser = config::switch)]
    log_json: bool,
    /// Join the fleet in etcd although the data directory belongs to another one: etcd has lost its data, or
    /// the node changes its fleet. Only for one start; sandboxes of the class `store` on this node end
    #[arg(long, env = "ISOLET_ACCEPT_FLEET", value_parser = config::switch)]
    accept_fleet: bool,
    /// Print the effective settings and exit
    #[arg(long)]
    print_config: bool,
}

/// Runs the server until it gets SIGTERM or SIGINT.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let print = args.print_config;
    let accepts_fleet = args.accept_fleet;
    let json = args.log_json;
    let settings = match ServerSettings::read(args.settings) {
        Ok(settings) => settings,
        Err(error) => return refuse(error, json && !print),
    };
    if print {
        print!("{}", settings.to_toml()?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut telemetry = match Telemetry::prepare(&settings.telemetry) {
        Ok(telemetry) => telemetry,
        Err(error) => return refuse(error, json),
    };
    let log = LogSettings { json, filter: settings.log.clone() };
    let log = logging::start(&log, telemetry.layer.take())?;
    more_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // As an object, because the runtime would instantiate all of the server's code three times.
    let server: Pin<Box<dyn Future<Output = Result<ExitCode>>>> = Box::pin(async {
        let exporting = telemetry.start();
        let done = serve(settings, log, accepts_fleet).await;
        exporting.finish().await;
        done
    });
    let done = runtime.block_on(server);
    runtime.shutdown_background();
    match done {
        // Each line of the log is JSON, the last one too.
        Err(error) if json => {
            error!(error = format!("{error:#}"), "the server ends");
            Ok(ExitCode::FAILURE)
        }
        done => done,
    }
}

/// Ends a start before its log has begun. Each line of a JSON log is JSON, the only one too.
fn refuse(error: anyhow::Error, json: bool) -> Result<ExitCode> {
    if !json {
        return Err(error);
    }
    let filter = logging::DEFAULT_FILTER.to_owned();
    logging::start(&LogSettings { json, filter }, None)?;
    error!(error = format!("{error:#}"), "the server does not start");
    Ok(ExitCode::FAILURE)
}

/// Raises the limit on open files to the hard limit. A sandbox needs a few descriptors, a client one or two.
fn more_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
}

async fn serve(settings: ServerSettings, log: LogControl, accepts_fleet: bool) -> Result<ExitCode> {
    let listen = settings.listen;
    let data_dir = settings.sandboxes.data_dir.clone();
    let api_key = std::env::var("ISOLET_API_KEY").ok().filter(|key| !key.is_empty());
    settings.tls.check_address(listen)?;
    let tls = settings.tls.files.clone().map(TlsFiles::watch).transpose()?;
    let has_tls = tls.is_some();
    let listener = bind(listen, RELEASE_WAIT).await.with_context(|| {
        format!("cannot listen on {listen}; choose another address with --listen")
    })?;
    doctor::at_start(&settings);
    let metrics = match settings.metrics_listen {
        Some(address) => Some(bind(address, RELEASE_WAIT).await.with_context(|| {
            format!("cannot listen on {address} for metrics; choose another --metrics-listen")
        })?),
        None => None,
    };
    let first = first_image(&data_dir);
    let opened = Service::open(settings.sandboxes).await;
    first.inspect(|first| first.ended(&data_dir));
    let service = opened.context("cannot start")?;
    let missing = service.missing();
    if !missing.is_empty() {
        if log.json() {
            missing
                .iter()
                .for_each(|one| error!(missing = %one, "this machine cannot run sandboxes yet"));
            return Ok(ExitCode::FAILURE);
        }
        eprintln!("This machine cannot run sandboxes yet:");
        missing.iter().for_each(|one| eprintln!("  - {one}"));
        eprintln!("`isolet doctor` makes all checks.");
        return Ok(ExitCode::FAILURE);
    }
    let admin = admin::server::listen(&data_dir).context("cannot create DATA/admin.sock")?;
    let admin = tokio::spawn(admin::server::serve(admin, service.clone(), log.clone()));
    let node = match settings.cluster {
        Some(cluster) => Some(Node::join(cluster, &service, accepts_fleet).await?),
        None => None,
    };
    let fresh = first_key(service.keys(), &data_dir, listen, api_key.is_some())?;
    let at = listener.local_addr()?;
    let url = own_url(at, has_tls, &settings.hosts);
    greet(&url, &data_dir, fresh.as_deref(), api_key.is_some());
    if let Some(address) = settings.metrics_listen {
        info!(listen = %address, "serving metrics without a key");
    }
    info!(listen = %at, tls = has_tls, data = %data_dir.display(), "serving");
    let builder = Builder::open(service.clone()).await.context("cannot read DATA/builds")?;
    let webhooks = webhooks(&service, settings.webhooks, node.as_ref()).await?;
    let names = ServerNames { hosts: settings.hosts, origins: settings.origins };
    let stop = stopped()?;
    let stopping = node.clone();
    let stop = async move {
        stop.await;
        if let Some(node) = stopping {
            node.stopping();
        }
    };
    isolet_http::serve(
        listener,
        service.clone(),
        Options {
            names,
            ports_domain: settings.ports_domain,
            api_key,
            not_found_limit_per_10s: settings.not_found_limit_per_10s,
            connections: settings.connections,
            tls,
            trusted_proxies: settings.tls.trusted_proxies,
            metrics,
            builder,
            webhooks: webhooks.clone(),
            fleet: node.clone().map(|node| node as Arc<dyn Fleet>),
        },
        stop,
    )
    .await;
    webhooks.stop();
    // Sandboxes that stand still for a backup continue.
    admin.abort();
    if let Some(node) = node {
        node.stop().await;
    }
    if tokio::time::timeout(STOP_WAIT, service.shutdown()).await.is_err() {
        warn!("shutdown timed out");
    }
    info!("stopped; sandboxes keep running");
    Ok(ExitCode::SUCCESS)
}

/// Begins to deliver events to webhooks.
async fn webhooks(
    service: &Service,
    settings: isolet_webhook::Settings,
    node: Option<&Arc<Node>>,
) -> Result<Webhooks> {
    let store = service.store().clone();
    let audit = service.audit().clone();
    let metrics = service.metrics().webhooks.clone();
    let fleet = node.map(|node| Arc::clone(node) as Arc<dyn FleetRecords>);
    let opened = Webhooks::open(store, audit, settings, metrics, fleet).await;
    opened.context("cannot read the webhooks")
}

/// Listens. Waits up to `wait` for a previous server that is shutting down and still holds the address.
async fn bind(listen: SocketAddr, wait: Duration) -> std::io::Result<TcpListener> {
    let until = Instant::now() + wait;
    let mut logged = false;
    loop {
        match TcpListener::bind(listen).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < until => {}
            done => return done,
        }
        if !logged {
            info!(%listen, "the address is in use; waiting for it");
            logged = true;
        }
        tokio::time::sleep(RELEASE_LOOK).await;
    }
}

/// Progress of preparing the host image, which takes seconds, for a person at a terminal.
struct Preparing {
    since: Instant,
    person: bool,
}

/// Prints the progress if this data directory has no host image yet.
fn first_image(data_dir: &Path) -> Option<Preparing> {
    if image_made(data_dir) {
        return None;
    }
    let person = std::io::stderr().is_terminal();
    if person {
        let mut stderr = std::io::stderr();
        let _ = write!(stderr, "preparing the host image, once for this data directory … ");
    } else {
        info!("preparing the host image, once for this data directory");
    }
    Some(Preparing { since: Instant::now(), person })
}

fn image_made(data_dir: &Path) -> bool {
    std::fs::read_dir(data_dir.join("image")).is_ok_and(|all| {
        all.flatten().any(|one| one.file_name().to_string_lossy().starts_with("host-"))
    })
}

impl Preparing {
    fn ended(&self, data_dir: &Path) {
        if !image_made(data_dir) {
            if self.person {
                let _ = writeln!(std::io::stderr(), "failed");
            }
            return;
        }
        let seconds = (self.since.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        if self.person {
            let _ = writeln!(std::io::stderr(), "done in {seconds} s");
        } else {
            info!(seconds, "the host image is prepared");
        }
    }
}

/// Completes at the first SIGTERM or SIGINT. The second one exits at once.
fn stopped() -> Result<impl Future<Output = ()>> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        tokio::spawn(async move {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            std::process::exit(1);
        });
    })
}

/// Creates the first key if the server has none, and returns its secret.
fn first_key(
    keys: &Keys,
    data_dir: &Path,
    listen: SocketAddr,
    own: bool,
) -> Result<Option<String>> {
    let open = keys.list()?.iter().any(|key| key.revoked_at_ms.is_none() && !expired(key));
    if open || own {
        return Ok(None);
    }
    if !listen.ip().is_loopback() {
        bail!(
            "no key opens this server, so it does not listen beyond loopback ({listen}); \
             create one first: isolet keys add --label NAME"
        );
    }
    let tenant = TenantId::default_tenant().as_str().to_owned();
    let new = NewKey { tenant, label: "first key".into(), ..NewKey::default() };
    let (_, secret) = keys.add(&new)?;
    keep(&data_dir.join("key"), &secret).context("cannot write DATA/key")?;
    Ok(Some(secret))
}

fn expired(key: &isolet_sandbox::Key) -> bool {
    key.expires_at_ms.is_some_and(|at| at <= isolet_clock::now_ms())
}

/// Writes the key to a temporary file of mode 0600 and renames it, so that no reader sees a part of it.
pub(crate) fn keep(path: &Path, secret: &str) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let _ = std::fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    writeln!(file, "{secret}")?;
    file.sync_all()?;
    std::fs::rename(&new, path)
}

/// The address for people. A certificate is valid for names, and seldom for addresses.
fn own_url(at: SocketAddr, has_tls: bool, hosts: &[String]) -> String {
    match hosts.first() {
        _ if !has_tls => format!("http://{at}"),
        None => format!("https://{at}"),
        Some(host) if host.contains(':') => format!("https://{host}"),
        Some(host) => format!("https://{host}:{}", at.port()),
    }
}

/// Prints the address of the server. Prints the key once, and only to a terminal.
fn greet(url: &str, data_dir: &Path, fresh: Option<&str>, own: bool) {
    let mut lines = format!("isolet {} on {url}\n", env!("CARGO_PKG_VERSION"));
    match fresh {
        Some(secret) if std::io::stdout().is_terminal() => {
            lines.push_str(&format!("with its key, shown only this once: {url}/#key={secret}\n"));
        }
        _ => {}
    }
    if !own {
        lines.push_str(&format!("key: {}\n", data_dir.join("key").display()));
    }
    let mut before = String::new();
    if url != format!("http://{LISTEN}") {
        before.push_str(&format!("ISOLET_URL={url} "));
    }
    if !own && data_dir != Path::new(DATA_DIR) {
        before.push_str(&format!("ISOLET_DATA_DIR={} ", data_dir.display()));
    }
    let program = std::env::args().next().unwrap_or_else(|| "isolet".into());
    lines.push_str(&format!("open a shell: {before}{program} shell demo\n"));
    // The server also runs when nobody reads its output.
    let mut stdout = std::io::stdout();
    let _ = stdout.write_all(lines.as_bytes()).and_then(|()| stdout.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_json_on_request() {
        assert!(Args::try_parse_from(["serve", "--log-json"]).is_ok_and(|args| args.log_json));
        assert!(Args::try_parse_from(["serve"]).is_ok_and(|args| !args.log_json));
    }

    #[tokio::test]
    async fn an_address_that_becomes_free_is_waited_for() {
        let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = first.local_addr().unwrap();
        let refused = bind(at, Duration::ZERO).await.expect_err("it is in use");
        assert_eq!(refused.kind(), ErrorKind::AddrInUse);
        let waiting = tokio::spawn(bind(at, Duration::from_secs(60)));
        tokio::task::yield_now().await;
        drop(first);
        assert_eq!(waiting.await.unwrap().unwrap().local_addr().unwrap(), at);
    }
}
