//! Keys and encryption of a server that listens beyond loopback.

use super::finding::Finding;
use crate::config::ServerSettings;
use crate::tls::TlsFiles;
use isolet_sandbox::count_valid_keys;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const GROUP: &str = "access";
/// How long before its end a certificate is reported, in seconds: 14 days. Automatic renewal comes
/// earlier.
const EXPIRY_WARNING_S: i64 = 14 * 24 * 3600;

pub(super) fn check(settings: &ServerSettings) -> Vec<Finding> {
    let mut all = vec![keys(settings.listen, &settings.sandboxes.data_dir)];
    all.extend(settings.tls.files.as_ref().map(certificate));
    all.push(encryption(settings));
    all.extend(key_file(&settings.sandboxes.data_dir));
    all
}

/// The checks that the start of a server does not make itself.
pub(super) fn at_start(settings: &ServerSettings) -> Vec<Finding> {
    let mut all: Vec<Finding> = key_file(&settings.sandboxes.data_dir).into_iter().collect();
    all.extend(settings.tls.files.as_ref().map(certificate));
    all
}

fn keys(listen: SocketAddr, data_dir: &Path) -> Finding {
    let check = "keys";
    if std::env::var_os("ISOLET_API_KEY").is_some_and(|key| !key.is_empty()) {
        return Finding::ok(GROUP, check, "the key in ISOLET_API_KEY");
    }
    let records = data_dir.join("isolet.db");
    let count = match records.try_exists() {
        Ok(false) => 0,
        Ok(true) => match count_valid_keys(&records) {
            Ok(count) => count,
            Err(error) => {
                let reason = format!("cannot read {} ({error})", records.display());
                return Finding::unchecked(GROUP, check, &reason, "run `sudo isolet doctor`");
            }
        },
        Err(_) => return Finding::needs_root(GROUP, check),
    };
    match count {
        0 if listen.ip().is_loopback() => {
            Finding::ok(GROUP, check, "none; the first start of the server creates one")
        }
        0 => Finding::failure(
            GROUP,
            check,
            format!("no key opens this server, so it does not listen beyond loopback ({listen})"),
            "isolet keys add --label NAME",
        ),
        count => Finding::ok(GROUP, check, format!("{count} valid")),
    }
}

/// The first key, which the command line uses.
fn key_file(data_dir: &Path) -> Option<Finding> {
    let file = data_dir.join("key");
    let mode = std::fs::metadata(&file).ok()?.mode() & 0o7777;
    (mode & 0o077 != 0).then(|| {
        Finding::failure(
            GROUP,
            "key file",
            format!("other users may read {} (mode {mode:04o})", file.display()),
            format!("chmod 600 {}; revoke the key if others had access", file.display()),
        )
    })
}

/// The certificate and its key, and until when the certificate is valid.
fn certificate(files: &TlsFiles) -> Finding {
    let check = "certificate";
    let shown = files.certificate.display();
    let expires = files.load().and_then(|_| files.expires_at());
    let expires = match expires {
        Ok(expires) => expires,
        Err(error) => {
            let remedy = "correct tls_cert and tls_key";
            return Finding::failure(GROUP, check, format!("{error:#}"), remedy);
        }
    };
    let date = isolet_clock::rfc3339(expires.saturating_mul(1000));
    let seconds = expires - isolet_clock::now_ms() / 1000;
    let renew = "renew it; the server reads new files without a restart";
    if seconds <= 0 {
        Finding::failure(GROUP, check, format!("{shown} expired at {date}"), renew)
    } else if seconds < EXPIRY_WARNING_S {
        Finding::warning(GROUP, check, format!("{shown} expires at {date}"), renew)
    } else {
        Finding::ok(GROUP, check, format!("{shown}, valid until {date}"))
    }
}

fn encryption(settings: &ServerSettings) -> Finding {
    let check = "encryption";
    let listen = settings.listen;
    let tls = &settings.tls;
    if tls.files.is_some() {
        return Finding::ok(GROUP, check, "TLS");
    }
    if listen.ip().is_loopback() {
        return Finding::ok(GROUP, check, "not needed: the server listens on loopback only");
    }
    let remedy = "set tls_cert and tls_key, or listen on loopback behind a reverse proxy with TLS";
    let refused = tls.check_address(listen);
    if let Err(error) = refused {
        return Finding::failure(GROUP, check, format!("{error:#}"), remedy);
    }
    let message = format!("keys and data cross the network in plain text ({listen})");
    Finding::warning(GROUP, check, message, remedy)
}
