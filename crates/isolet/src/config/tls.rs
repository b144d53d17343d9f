//! The settings that protect connections: certificate and key, plaintext beyond loopback, trusted
//! proxies.

use crate::config::overrides::GivenTls;
use crate::tls::TlsFiles;
use anyhow::{Context, Result, anyhow, bail};
use isolet_http::TrustedProxies;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The effective settings that protect connections.
#[derive(Debug)]
pub(crate) struct TlsSettings {
    /// `None`: the server speaks plain HTTP.
    pub(crate) files: Option<TlsFiles>,
    /// Whether to listen beyond loopback without TLS.
    pub(crate) allow_plaintext: bool,
    /// As configured, for `--print-config`.
    pub(crate) proxy_texts: Vec<String>,
    /// The reverse proxies whose headers count.
    pub(crate) trusted_proxies: TrustedProxies,
}

impl GivenTls {
    /// Prefers these settings to those of `file`. Certificate and key are taken from one source.
    ///
    /// # Errors
    /// When one of the two paths is missing or relative, or a proxy is no address.
    pub(super) fn over(self, file: Self) -> Result<TlsSettings> {
        let pair = if self.certificate.is_some() || self.key.is_some() {
            (self.certificate, self.key)
        } else {
            (file.certificate, file.key)
        };
        let files = match pair {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                Some(TlsFiles { certificate: absolute(certificate)?, key: absolute(key)? })
            }
            (Some(_), None) => bail!("tls_cert is set and tls_key is not; set both or neither"),
            (None, Some(_)) => bail!("tls_key is set and tls_cert is not; set both or neither"),
        };
        let given = self.trusted_proxies;
        let proxy_texts = if given.is_empty() { file.trusted_proxies } else { given };
        let trusted_proxies = TrustedProxies::parse(&proxy_texts).map_err(|text| {
            anyhow!("trusted_proxies: {text:?} is neither an address nor a network such as \"10.0.0.0/8\"")
        })?;
        let allow_plaintext = self.allow_plaintext.or(file.allow_plaintext).unwrap_or(false);
        Ok(TlsSettings { files, allow_plaintext, proxy_texts, trusted_proxies })
    }
}

/// The working directory of a service is not the operator's.
fn absolute(path: PathBuf) -> Result<PathBuf> {
    std::path::absolute(&path).with_context(|| format!("{} is not a path", path.display()))
}

impl TlsSettings {
    /// Checks that the connections of a server on this address are protected, or that the
    /// configuration says that they need not be.
    ///
    /// # Errors
    /// When the server must not listen there.
    pub(crate) fn check_address(&self, listen: SocketAddr) -> Result<()> {
        let loopback = listen.ip().to_canonical().is_loopback();
        if loopback || self.allow_plaintext || self.files.is_some() {
            return Ok(());
        }
        bail!(
            "this server does not listen beyond loopback ({listen}) without TLS, because everyone on the path could read keys and output; set tls_cert and tls_key, or set allow_plaintext = true (--allow-plaintext) if a reverse proxy or a private network protects the connections (docs/tls.md)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(certificate: Option<&str>, key: Option<&str>) -> GivenTls {
        GivenTls {
            certificate: certificate.map(PathBuf::from),
            key: key.map(PathBuf::from),
            ..GivenTls::default()
        }
    }

    #[test]
    fn certificate_and_key_come_together_and_from_one_source() {
        let file = || pair(Some("/c"), Some("/k"));
        let files = |own: GivenTls| own.over(file()).map(|all| all.files);
        let of_file = TlsFiles { certificate: "/c".into(), key: "/k".into() };
        assert_eq!(files(pair(None, None)).unwrap(), Some(of_file));
        let own = TlsFiles { certificate: "/a".into(), key: "/b".into() };
        assert_eq!(files(pair(Some("/a"), Some("/b"))).unwrap(), Some(own));
        assert!(files(pair(Some("/a"), None)).unwrap_err().to_string().contains("tls_key"));
        assert!(files(pair(None, Some("/b"))).unwrap_err().to_string().contains("tls_cert"));
        let relative = pair(Some("c"), Some("k")).over(GivenTls::default()).unwrap().files.unwrap();
        assert!(relative.certificate.is_absolute() && relative.key.is_absolute());
    }

    #[test]
    fn a_proxy_that_is_no_address_is_refused_by_name() {
        let own = GivenTls { trusted_proxies: vec!["proxy.example".into()], ..GivenTls::default() };
        let error = own.over(GivenTls::default()).unwrap_err().to_string();
        assert!(error.contains("proxy.example"), "{error}");
    }

    #[test]
    fn plaintext_beyond_loopback_must_be_allowed() {
        let check = |own: GivenTls, at: &str| {
            let settings = own.over(GivenTls::default()).unwrap();
            settings.check_address(at.parse().unwrap()).is_ok()
        };
        let bare = GivenTls::default;
        for at in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(check(bare(), at), "{at}");
        }
        for at in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"] {
            assert!(!check(bare(), at), "{at}");
            assert!(check(pair(Some("/c"), Some("/k")), at), "{at}");
            let allowed = GivenTls { allow_plaintext: Some(true), ..bare() };
            assert!(check(allowed, at), "{at}");
        }
    }
}
