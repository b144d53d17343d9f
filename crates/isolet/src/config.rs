//! The settings of the server. A flag wins over an `ISOLET_*` variable, a variable over the TOML
//! file, and the file over the default.

mod cluster;
mod connections;
mod log;
mod network;
mod overrides;
mod programs;
mod quotas;
mod store;
mod switch;
mod telemetry;
mod tls;
mod uid_base;
mod urls;
mod webhooks;

use anyhow::{Context, Result, bail};
use connections::ConnectionsFile;
use isolet_cluster::model::{ClusterFile, ClusterSettings};
use isolet_http::ConnectionLimits;
use isolet_sandbox::{Config, Limits, TenantId};
use network::NetworkFile;
pub(crate) use overrides::{GivenTls, Overrides};
use quotas::{QuotasFile, TenantFile, set_quotas, shown_tenant};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::StoreFile;
pub(crate) use switch::switch;
use telemetry::TelemetryFile;
pub(crate) use telemetry::TelemetrySettings;
pub(crate) use tls::TlsSettings;
use webhooks::WebhooksFile;

/// The default address of the server.
pub(crate) const LISTEN: &str = "127.0.0.1:7300";
/// The default data directory.
pub(crate) const DATA_DIR: &str = "/var/lib/isolet";
/// The default configuration file. It may be missing.
const FILE: &str = "/etc/isolet/isolet.toml";
/// The shipped configuration file. Its tables are the default where the user's file has none.
const SHIPPED: &str = include_str!("../../../config/isolet.toml");

/// All keys of the configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    listen: Option<SocketAddr>,
    data_dir: Option<PathBuf>,
    hosts: Vec<String>,
    origins: Vec<String>,
    ports_domain: Option<String>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    allow_plaintext: Option<bool>,
    trusted_proxies: Vec<String>,
    metrics_listen: Option<SocketAddr>,
    sandboxes_max: Option<u32>,
    uid_base: Option<u32>,
    stall_ms: Option<u64>,
    warm_pool_size: Option<u32>,
    recover_timeout_s: Option<u64>,
    session_idle_s: Option<u64>,
    sleep_after_s: Option<u64>,
    page_out_after_s: Option<u64>,
    snapshot_every_s_min: Option<u64>,
    free_space_floor_mib: Option<u64>,
    not_found_limit_per_10s: Option<u32>,
    limits: LimitsFile,
    limits_max: LimitsFile,
    quotas: QuotasFile,
    tenants: BTreeMap<TenantId, TenantFile>,
    images: Option<Images>,
    connections: ConnectionsFile,
    network: NetworkFile,
    log: Option<String>,
    telemetry: TelemetryFile,
    store: Option<StoreFile>,
    cluster: Option<ClusterFile>,
    webhooks: WebhooksFile,
}

#[derive(Debug, Default, Clone, Copy, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsFile {
    memory_mib: Option<u64>,
    cpu_millis: Option<u64>,
    pids: Option<u64>,
    disk_mib: Option<u64>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Images {
    #[serde(skip_serializing_if = "Option::is_none")]
    pull: Option<Pull>,
    #[serde(skip_serializing_if = "Option::is_none")]
    registries: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credentials: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shared: Option<TenantId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compressed_mib: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unpacked_mib: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pull_timeout_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_s: Option<u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    mirrors: BTreeMap<String, Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aliases: Option<BTreeMap<String, String>>,
}

/// Whether the server pulls an image that it does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Pull {
    Missing,
    Never,
}

impl Images {
    /// Puts the settings of the file over `config`.
    fn over(self, mut config: isolet_sandbox::image::Config) -> isolet_sandbox::image::Config {
        config.pull = self.pull != Some(Pull::Never);
        config.registries = self.registries.unwrap_or(config.registries);
        config.credentials = self.credentials.or(config.credentials);
        config.shared = self.shared.map(|tenant| tenant.to_string()).or(config.shared);
        config.mirrors = self.mirrors;
        let limits = &mut config.limits;
        limits.compressed_mib = self.compressed_mib.unwrap_or(limits.compressed_mib);
        limits.unpacked_mib = self.unpacked_mib.unwrap_or(limits.unpacked_mib);
        limits.pull = self.pull_timeout_s.map_or(limits.pull, Duration::from_secs);
        limits.idle = self.idle_s.map_or(limits.idle, Duration::from_secs);
        config
    }

    fn of(config: &Config) -> Self {
        let images = &config.images;
        let limits = config.images.limits;
        Self {
            pull: Some(if images.pull { Pull::Missing } else { Pull::Never }),
            registries: Some(images.registries.clone()),
            credentials: images.credentials.clone(),
            shared: images.shared.as_deref().and_then(|id| TenantId::parse(id).ok()),
            compressed_mib: Some(limits.compressed_mib),
            unpacked_mib: Some(limits.unpacked_mib),
            pull_timeout_s: Some(limits.pull.as_secs()),
            idle_s: Some(limits.idle.as_secs()),
            mirrors: images.mirrors.clone(),
            aliases: Some(config.aliases.clone()),
        }
    }
}

/// The effective settings, including the defaults.
#[derive(Debug)]
pub(crate) struct ServerSettings {
    /// The address and port to listen on.
    pub(crate) listen: SocketAddr,
    /// Host names under which clients reach the server, beside loopback.
    pub(crate) hosts: Vec<String>,
    /// Origins of web pages that may call the server.
    pub(crate) origins: Vec<String>,
    /// The domain below which each port of a sandbox has a host name.
    pub(crate) ports_domain: Option<String>,
    /// TLS, plaintext and proxies.
    pub(crate) tls: TlsSettings,
    /// The loopback address and port on which the metrics need no key; `None`: no such listener.
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// The limit on 401 and 404 answers; see [`isolet_http::Options::not_found_limit_per_10s`].
    pub(crate) not_found_limit_per_10s: u32,
    /// Limits on the connections of clients.
    pub(crate) connections: ConnectionLimits,
    /// What the log contains: a level or directives.
    pub(crate) log: String,
    /// Where traces are sent, if anywhere.
    pub(crate) telemetry: TelemetrySettings,
    /// The fleet that this server is a node of; `None`: it serves alone.
    pub(crate) cluster: Option<ClusterSettings>,
    /// How the server tells webhooks about events.
    pub(crate) webhooks: isolet_webhook::Settings,
    /// The settings of sandboxes and images.
    pub(crate) sandboxes: Config,
}

/// The effective settings as `--print-config` shows them.
///
/// More than 12 fields: one for each key at the top of the file.
#[derive(Serialize)]
struct PrintedSettings<'a> {
    listen: SocketAddr,
    data_dir: &'a Path,
    hosts: &'a [String],
    origins: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    ports_domain: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_cert: Option<&'a Path>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_key: Option<&'a Path>,
    allow_plaintext: bool,
    trusted_proxies: &'a [String],
    metrics_listen: Option<SocketAddr>,
    sandboxes_max: u32,
    uid_base: u32,
    stall_ms: u64,
    warm_pool_size: u32,
    recover_timeout_s: u64,
    session_idle_s: u64,
    sleep_after_s: u64,
    page_out_after_s: u64,
    snapshot_every_s_min: u64,
    free_space_floor_mib: u64,
    not_found_limit_per_10s: u32,
    log: &'a str,
    limits: LimitsFile,
    limits_max: LimitsFile,
    quotas: QuotasFile,
    tenants: BTreeMap<&'a str, TenantFile>,
    images: Images,
    connections: ConnectionsFile,
    network: NetworkFile,
    telemetry: TelemetryFile,
    webhooks: WebhooksFile,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<StoreFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<ClusterFile>,
}

impl ServerSettings {
    /// Reads the configuration file and applies the overrides.
    ///
    /// # Errors
    /// When the file cannot be read or parsed, and when a setting is out of bounds.
    pub(crate) fn read(overrides: Overrides) -> Result<Self> {
        let file = match &overrides.file {
            Some(path) => parse(&read(path)?, path)?,
            None => match std::fs::read_to_string(FILE) {
                Ok(text) => parse(&text, Path::new(FILE))?,
                Err(error) if error.kind() == ErrorKind::NotFound => File::default(),
                Err(error) => return Err(error).with_context(|| format!("cannot read {FILE}")),
            },
        };
        let data_dir = overrides.data_dir.or(file.data_dir).unwrap_or_else(|| DATA_DIR.into());
        if !data_dir.is_absolute() {
            bail!("the data directory must be an absolute path: {}", data_dir.display());
        }
        let programs = programs::directory()?;
        let mut sandboxes = Config::new(data_dir, &programs);
        let shipped = || parse(SHIPPED, Path::new("the shipped configuration"));
        let mut images = file.images.unwrap_or_default();
        sandboxes.aliases = match images.aliases.take() {
            Some(aliases) => aliases,
            None => shipped()?.images.and_then(|images| images.aliases).unwrap_or_default(),
        };
        sandboxes.images = images.over(sandboxes.images);
        let origins = if overrides.origins.is_empty() { file.origins } else { overrides.origins };
        for origin in &origins {
            urls::refuse_user("origins", origin, "name only scheme, host and port")?;
        }
        for mirror in sandboxes.images.mirrors.values().flatten() {
            urls::refuse_user("[images.mirrors]", mirror, "name only host and port")?;
        }
        sandboxes.network = file.network.settings()?;
        sandboxes.limits_max = over(sandboxes.limits_max, file.limits_max);
        let disk_mib = overrides.default_disk_mib.or(file.limits.disk_mib);
        let most = sandboxes.limits_max.disk_mib;
        let disk_mib = disk_mib.unwrap_or_else(|| sandboxes.limits.disk_mib.min(most));
        let limits = LimitsFile { disk_mib: Some(disk_mib), ..file.limits };
        sandboxes.limits = over(sandboxes.limits, limits);
        sandboxes.sandboxes_max = file.sandboxes_max.unwrap_or(sandboxes.sandboxes_max);
        sandboxes.uid_base = uid_base::of(file.uid_base)?;
        sandboxes.stall_ms = overrides.stall_ms.or(file.stall_ms).unwrap_or(sandboxes.stall_ms);
        let pool = overrides.warm_pool_size.or(file.warm_pool_size);
        sandboxes.warm_pool_size = pool.unwrap_or(sandboxes.warm_pool_size);
        if let Some(seconds) = file.recover_timeout_s {
            sandboxes.recover = Duration::from_secs(seconds);
        }
        if let Some(seconds) = file.session_idle_s {
            sandboxes.session_idle = Duration::from_secs(seconds);
        }
        sandboxes.sleep_after_s = file.sleep_after_s.unwrap_or(sandboxes.sleep_after_s);
        if let Some(seconds) = file.page_out_after_s {
            sandboxes.page_out_after_s = seconds;
        }
        if let Some(seconds) = file.snapshot_every_s_min {
            sandboxes.snapshot_every_s_min = seconds;
        }
        if let Some(mib) = file.free_space_floor_mib {
            sandboxes.free_space_floor_mib = mib;
        }
        set_quotas(&mut sandboxes, file.quotas, file.tenants)?;
        sandboxes.store = file.store.map(StoreFile::settings).transpose()?;
        let cluster = file.cluster.map(ClusterFile::settings).transpose()?;
        sandboxes.fleet = cluster.as_ref().map(cluster::fleet);
        let mut webhooks = file.webhooks.settings(&sandboxes.data_dir)?;
        webhooks.node = cluster.as_ref().map(|cluster| cluster.node.to_string());
        let of_file = GivenTls {
            certificate: file.tls_cert,
            key: file.tls_key,
            allow_plaintext: file.allow_plaintext,
            trusted_proxies: file.trusted_proxies,
        };
        let listen = overrides.listen.or(file.listen);
        let ports_domain = overrides.ports_domain.or(file.ports_domain);
        if let Some(domain) = ports_domain.as_deref().filter(|domain| !is_domain(domain)) {
            bail!("ports_domain must be a bare host name such as box.example: {domain:?}");
        }
        let metrics_listen = overrides.metrics_listen.or(file.metrics_listen);
        if let Some(address) = metrics_listen.filter(|address| !address.ip().is_loopback()) {
            bail!(
                "metrics_listen must be a loopback address, because it needs no key: {address}; \
                 from elsewhere, read /metrics of `listen` with a key"
            );
        }
        Ok(Self {
            listen: listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 7300))),
            hosts: if overrides.hosts.is_empty() { file.hosts } else { overrides.hosts },
            origins,
            ports_domain,
            tls: overrides.tls.over(of_file)?,
            metrics_listen,
            not_found_limit_per_10s: file
                .not_found_limit_per_10s
                .unwrap_or(isolet_http::NOT_FOUND_LIMIT),
            connections: file.connections.settings()?,
            log: log::filter(overrides.log, file.log)?,
            telemetry: file.telemetry.settings(overrides.otlp_endpoint)?,
            cluster,
            webhooks,
            sandboxes,
        })
    }

    /// The effective settings as the text of a configuration file.
    pub(crate) fn to_toml(&self) -> Result<String> {
        let of = |limits: Limits| LimitsFile {
            memory_mib: Some(limits.memory_mib),
            cpu_millis: Some(limits.cpu_millis),
            pids: Some(limits.pids),
            disk_mib: Some(limits.disk_mib),
        };
        let all = &self.sandboxes;
        let tenants = all.tenants.iter();
        let shown = PrintedSettings {
            listen: self.listen,
            data_dir: &all.data_dir,
            hosts: &self.hosts,
            origins: &self.origins,
            ports_domain: self.ports_domain.as_deref(),
            tls_cert: self.tls.files.as_ref().map(|files| files.certificate.as_path()),
            tls_key: self.tls.files.as_ref().map(|files| files.key.as_path()),
            allow_plaintext: self.tls.allow_plaintext,
            trusted_proxies: &self.tls.proxy_texts,
            metrics_listen: self.metrics_listen,
            sandboxes_max: all.sandboxes_max,
            uid_base: all.uid_base,
            stall_ms: all.stall_ms,
            warm_pool_size: all.warm_pool_size,
            recover_timeout_s: all.recover.as_secs(),
            session_idle_s: all.session_idle.as_secs(),
            sleep_after_s: all.sleep_after_s,
            page_out_after_s: all.page_out_after_s,
            snapshot_every_s_min: all.snapshot_every_s_min,
            free_space_floor_mib: all.free_space_floor_mib,
            not_found_limit_per_10s: self.not_found_limit_per_10s,
            log: &self.log,
            limits: of(all.limits),
            limits_max: of(all.limits_max),
            quotas: QuotasFile {
                disk_mib: all.disk_quota_mib,
                images_mib: all.images.quotas.default_mib,
            },
            tenants: tenants
                .map(|(id, limits)| (id.as_str(), shown_tenant(all, id, limits)))
                .collect(),
            images: Images::of(all),
            connections: ConnectionsFile::shown(&self.connections),
            network: NetworkFile::shown(&all.network),
            telemetry: TelemetryFile::shown(&self.telemetry),
            webhooks: WebhooksFile::shown(&self.webhooks),
            store: all.store.as_ref().map(StoreFile::shown),
            cluster: self.cluster.as_ref().map(ClusterFile::shown),
        };
        Ok(toml::to_string_pretty(&shown)?)
    }
}

/// Whether the text is a bare host name: no scheme, no port, no path.
fn is_domain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    text.len() <= 180 && text.split('.').all(|part| !part.is_empty() && part.bytes().all(plain))
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn parse(text: &str, path: &Path) -> Result<File> {
    toml::from_str(text)
        .with_context(|| format!("{} is not a valid configuration file", path.display()))
}

fn over(limits: Limits, file: LimitsFile) -> Limits {
    Limits {
        memory_mib: file.memory_mib.unwrap_or(limits.memory_mib),
        cpu_millis: file.cpu_millis.unwrap_or(limits.cpu_millis),
        pids: file.pids.unwrap_or(limits.pids),
        disk_mib: file.disk_mib.unwrap_or(limits.disk_mib),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_file_is_understood_and_names_the_clients_images() {
        let shipped = parse(SHIPPED, Path::new("shipped")).unwrap();
        let aliases = shipped.images.unwrap().aliases.unwrap();
        let host = |name: &str| (name.to_owned(), "host".to_owned());
        assert_eq!(
            aliases,
            BTreeMap::from([host("node:22-slim")]),
            "every other image name means that image"
        );
    }

    /// Promises: P3.
    #[test]
    fn every_commented_default_is_what_is_in_force() {
        let uncommented: String = SHIPPED
            .lines()
            .map(|line| {
                line.strip_prefix("# ")
                    .filter(|l| l.contains(" = ") || l.starts_with('['))
                    .unwrap_or(line)
            })
            .map(|line| format!("{line}\n"))
            .collect();
        let file = parse(&uncommented, Path::new("uncommented")).unwrap();
        let plain = ServerSettings::read(Overrides {
            data_dir: Some("/tmp/x".into()),
            ..Overrides::default()
        });
        let plain = plain.unwrap();
        assert_eq!(file.listen, Some(plain.listen));
        assert_eq!(file.listen, Some(LISTEN.parse().unwrap()));
        assert_eq!(file.data_dir.as_deref(), Some(Path::new(DATA_DIR)));
        assert_eq!(file.allow_plaintext, Some(plain.tls.allow_plaintext));
        assert_eq!(plain.metrics_listen, None, "the file shows an example");
        assert_eq!(file.sandboxes_max, Some(plain.sandboxes.sandboxes_max));
        assert_eq!(file.uid_base, Some(plain.sandboxes.uid_base));
        assert_eq!(file.stall_ms, Some(plain.sandboxes.stall_ms));
        assert_eq!(file.warm_pool_size, Some(plain.sandboxes.warm_pool_size));
        assert_eq!(file.recover_timeout_s, Some(plain.sandboxes.recover.as_secs()));
        assert_eq!(file.session_idle_s, Some(plain.sandboxes.session_idle.as_secs()));
        assert_eq!(file.session_idle_s, Some(300), "the default of the /v1/sessions protocol");
        assert_eq!(file.sleep_after_s, Some(plain.sandboxes.sleep_after_s));
        assert_eq!(file.page_out_after_s, Some(plain.sandboxes.page_out_after_s));
        assert_eq!(file.snapshot_every_s_min, Some(plain.sandboxes.snapshot_every_s_min));
        assert_eq!(file.free_space_floor_mib, Some(plain.sandboxes.free_space_floor_mib));
        assert_eq!(file.not_found_limit_per_10s, Some(plain.not_found_limit_per_10s));
        assert_eq!(file.connections.settings().unwrap(), ConnectionLimits::default());
        let quotas = &plain.sandboxes.images.quotas;
        let in_force = (plain.sandboxes.disk_quota_mib, quotas.default_mib);
        assert_eq!((file.quotas.disk_mib, file.quotas.images_mib), in_force);
        let images = file.images.unwrap();
        let limits = plain.sandboxes.images.limits;
        assert_eq!((images.pull, plain.sandboxes.images.pull), (Some(Pull::Missing), true));
        assert_eq!(images.compressed_mib, Some(limits.compressed_mib));
        assert_eq!(images.unpacked_mib, Some(limits.unpacked_mib));
        assert_eq!(images.pull_timeout_s, Some(limits.pull.as_secs()));
        assert_eq!(images.idle_s, Some(limits.idle.as_secs()));
        let webhooks = file.webhooks.settings(&plain.sandboxes.data_dir).unwrap();
        assert_eq!(
            (webhooks.addresses, webhooks.retry),
            (plain.webhooks.addresses, plain.webhooks.retry)
        );
        let mut network = file.network.settings().unwrap();
        assert_eq!(network.profiles.len(), 1, "an example");
        network.profiles.clear();
        assert_eq!(network, plain.sandboxes.network);
        assert_eq!(over(plain.sandboxes.limits, file.limits), plain.sandboxes.limits);
        assert_eq!(over(plain.sandboxes.limits_max, file.limits_max), plain.sandboxes.limits_max);
    }

    #[test]
    fn a_disk_quota_needs_sandboxes_with_a_limited_disk() {
        let read = |text: &str| {
            let file = parse(text, Path::new("f")).unwrap();
            let mut config = Config::new("/tmp/x".into(), Path::new("/tmp"));
            config.limits = over(config.limits, file.limits);
            set_quotas(&mut config, file.quotas, file.tenants).map(|()| config)
        };
        let none = "[limits]\ndisk_mib = 0\n";
        assert!(read(&format!("{none}[quotas]\ndisk_mib = 5")).is_err());
        assert!(read(&format!("{none}[tenants.a]\ndisk_mib = 5")).is_err());
        assert!(read(&format!("{none}[quotas]\nimages_mib = 5")).is_ok());
        let text = "[limits]\ndisk_mib = 64\n[quotas]\ndisk_mib = 5\n[tenants.a]\ndisk_mib = 0";
        let config = read(text).unwrap();
        let quota = |tenant: &str| config.disk_quota_mib(&tenant.parse().unwrap());
        assert_eq!((quota("a"), quota("b")), (None, Some(5)));
        assert_eq!(config.sandboxes_max(&"a".parse().unwrap()), config.sandboxes_max);
    }

    #[test]
    fn a_domain_of_ports_is_a_host_name_alone() {
        assert!(["localhost", "box.example", "a-b.c"].into_iter().all(is_domain));
        assert!(!["", ".a", "a.", "a:80", "https://a", "a/b", "*.a"].into_iter().any(is_domain));
    }

    #[test]
    fn metrics_without_a_key_stay_on_loopback() {
        let read = |address: &str| {
            ServerSettings::read(Overrides {
                data_dir: Some("/tmp/x".into()),
                metrics_listen: Some(address.parse().unwrap()),
                ..Overrides::default()
            })
        };
        for address in ["127.0.0.1:9600", "127.9.9.9:1", "[::1]:9600"] {
            assert!(read(address).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:9600", "[::]:9600", "192.0.2.1:9600"] {
            let error = read(address).unwrap_err().to_string();
            assert!(error.contains("loopback"), "{error}");
        }
    }

    #[test]
    fn unknown_names_are_an_error() {
        for text in [
            "nope = 1",
            "[limits]\nnope = 1",
            "[tenants.a]\nnope = 1",
            "[images]\nnope = 1",
            "[connections]\nnope = 1",
            "[store]\nnope = 1",
            "listen = \"x\"",
        ] {
            assert!(parse(text, Path::new("f")).is_err(), "{text}");
        }
    }
}
