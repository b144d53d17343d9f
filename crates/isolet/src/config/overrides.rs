//! The settings that flags and environment variables give.

use crate::config::switch::switch;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Settings of `isolet serve`, with a field for each flag. `isolet doctor` checks the same ones.
#[derive(Debug, Default, Clone, clap::Args)]
pub(crate) struct Overrides {
    /// Read this configuration file [default: /etc/isolet/isolet.toml, if it exists]
    #[arg(long = "config", env = "ISOLET_CONFIG", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Listen on this address and port [default: 127.0.0.1:7300]
    #[arg(long, env = "ISOLET_LISTEN", value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Store records, keys and the files of sandboxes here [default: /var/lib/isolet]
    #[arg(long, env = "ISOLET_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Accept requests for this host name (NAME or NAME:PORT). Repeatable
    #[arg(long = "host", env = "ISOLET_HOSTS", value_name = "NAME", value_delimiter = ',')]
    pub(crate) hosts: Vec<String>,
    /// Accept requests from web pages of this origin (https://NAME). Repeatable
    #[arg(long = "origin", env = "ISOLET_ORIGINS", value_name = "ORIGIN", value_delimiter = ',')]
    pub(crate) origins: Vec<String>,
    /// Give each port of a sandbox a host name below this domain (localhost for one machine)
    #[arg(long, env = "ISOLET_PORTS_DOMAIN", value_name = "NAME")]
    pub(crate) ports_domain: Option<String>,
    #[command(flatten)]
    pub(crate) tls: GivenTls,
    /// Serve /metrics without a key on this loopback address [default: none]
    #[arg(long, env = "ISOLET_METRICS_LISTEN", value_name = "ADDRESS:PORT")]
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// Set how long a command waits for a client that does not read, in ms
    #[arg(long, env = "ISOLET_STALL_MS", value_name = "MS")]
    pub(crate) stall_ms: Option<u64>,
    /// Set the size of the warm pool: sandboxes created in advance, 0 to 64
    #[arg(long, env = "ISOLET_WARM_POOL_SIZE", value_name = "COUNT", value_parser = clap::value_parser!(u32).range(0..=64))]
    pub(crate) warm_pool_size: Option<u32>,
    /// Set the size of the disk of a sandbox that is created without one, in MiB; 0 for no limit
    #[arg(long, env = "ISOLET_DEFAULT_DISK_MIB", value_name = "MIB")]
    pub(crate) default_disk_mib: Option<u64>,
    /// Log what this level admits: off, error, warn, info, debug, trace; or directives [default: info]
    #[arg(long = "log-level", env = "ISOLET_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// Export traces to this receiver of OTLP over HTTP [default: none]
    #[arg(long, env = "ISOLET_OTLP_ENDPOINT", value_name = "URL")]
    pub(crate) otlp_endpoint: Option<String>,
}

/// The settings that protect connections, from flags and variables or from a file.
#[derive(Debug, Default, Clone, clap::Args)]
pub(crate) struct GivenTls {
    /// Serve HTTPS with this certificate chain (PEM), read again when it changes; requires --tls-key
    #[arg(long = "tls-cert", env = "ISOLET_TLS_CERT", value_name = "FILE")]
    pub(crate) certificate: Option<PathBuf>,
    /// Use this private key (PEM, without a passphrase) for --tls-cert
    #[arg(long = "tls-key", env = "ISOLET_TLS_KEY", value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Listen beyond loopback without TLS: for a private network, or behind a reverse proxy
    #[arg(long, env = "ISOLET_ALLOW_PLAINTEXT", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = switch)]
    pub(crate) allow_plaintext: Option<bool>,
    /// Believe the X-Forwarded-* and Forwarded headers of this reverse proxy (address or network). Repeatable
    #[arg(
        long = "trusted-proxy",
        env = "ISOLET_TRUSTED_PROXIES",
        value_name = "ADDRESS",
        value_delimiter = ','
    )]
    pub(crate) trusted_proxies: Vec<String>,
}
