//! Installs the CA certificate that a sandbox must trust so that the egress proxy can inject
//! credentials within TLS.
//!
//! The directory `/etc/isolet` is read-only inside the sandbox, and the server changes it from
//! outside. It holds the CA certificate and a bundle of this certificate with those that the
//! sandbox already trusts. Environment variables of every new program name these files. Programs
//! that ignore the environment read the system's bundle, so the certificate is also appended to
//! that file, between two marker lines.

use crate::agent_client::agent_version::AgentAddress;
use crate::agent_client::text_file::{fetch, save};
use crate::model::blocking::blocking;
use crate::model::error::Error;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::timeout;

/// The CA certificate alone, in the directory that is mounted as `/etc/isolet`.
const OWN: &str = "credentials.pem";
/// The CA certificate together with those that the sandbox already trusts.
const BUNDLE: &str = "ca-certificates.crt";
const OWN_INSIDE: &str = "/etc/isolet/credentials.pem";
const BUNDLE_INSIDE: &str = "/etc/isolet/ca-certificates.crt";

/// The variables that programs read: first those for a complete bundle, then those for additional
/// certificates.
const ENV: [(&str, &str); 11] = [
    ("SSL_CERT_FILE", BUNDLE_INSIDE),
    ("CURL_CA_BUNDLE", BUNDLE_INSIDE),
    ("REQUESTS_CA_BUNDLE", BUNDLE_INSIDE),
    ("PIP_CERT", BUNDLE_INSIDE),
    ("GIT_SSL_CAINFO", BUNDLE_INSIDE),
    ("CARGO_HTTP_CAINFO", BUNDLE_INSIDE),
    ("AWS_CA_BUNDLE", BUNDLE_INSIDE),
    ("NIX_SSL_CERT_FILE", BUNDLE_INSIDE),
    ("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", BUNDLE_INSIDE),
    ("NODE_EXTRA_CA_CERTS", OWN_INSIDE),
    ("DENO_CERT", OWN_INSIDE),
];

/// Paths of the system's bundle on Debian and Alpine, Fedora, SUSE and others.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Maximum size of a bundle that is copied, in bytes. Debian's bundle has 220 KiB.
const BUNDLE_BYTES_MAX: usize = 4 * 1024 * 1024;
const PEM: &str = "-----BEGIN CERTIFICATE-----";
const BEGIN: &str = "# isolet: begin";
const END: &str = "# isolet: end";
/// Timeout of the whole installation in one sandbox.
const WAIT: Duration = Duration::from_secs(10);

/// The environment of programs in a sandbox that must trust the CA.
pub(crate) fn env() -> impl Iterator<Item = (String, String)> {
    ENV.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()))
}

/// Removes the marked lines from a bundle.
fn stripped(text: &str) -> String {
    let Some((before, rest)) = text.split_once(BEGIN) else { return text.to_owned() };
    let after = rest.split_once(END).map_or("", |(_, after)| after.trim_start_matches('\n'));
    format!("{before}{after}")
}

fn with(bundle: &str, certificate: &str) -> String {
    let gap = if bundle.is_empty() || bundle.ends_with('\n') { "" } else { "\n" };
    format!("{bundle}{gap}{BEGIN}\n{}\n{END}\n", certificate.trim_end())
}

/// Makes a running sandbox trust this certificate, or removes it with `None`.
pub(crate) async fn put(
    agent: AgentAddress<'_>,
    given: PathBuf,
    certificate: Option<&str>,
) -> Result<(), Error> {
    let own = given.join(OWN);
    let before = blocking(move || fs::read_to_string(own).ok()).await?;
    if certificate.is_none() && before.is_none() {
        return Ok(());
    }
    let work = async {
        let system = system(agent).await?;
        if let Some(certificate) = certificate {
            let base = match &system {
                Some((_, text)) => stripped(text),
                None => blocking(hosts).await?,
            };
            let files = [(BUNDLE, with(&base, certificate)), (OWN, certificate.to_owned())];
            let folder = given.clone();
            blocking(move || files.iter().try_for_each(|(name, text)| show(&folder, name, text)))
                .await?
                .map_err(|error| Error::Fault(format!("cannot show a certificate: {error}")))?;
        }
        if let Some((path, text)) = system {
            let base = stripped(&text);
            let new = certificate.map_or(base.clone(), |certificate| with(&base, certificate));
            if new != text {
                save(agent, path, new.as_bytes()).await?;
            }
        }
        if certificate.is_none() {
            let gone = move || [OWN, BUNDLE].map(|name| fs::remove_file(given.join(name)).ok());
            blocking(gone).await?;
        }
        Ok(())
    };
    timeout(WAIT, work).await.map_err(|_| Error::TooLate("the certificate"))?
}

/// Replaces a file atomically, so that no reader sees half of it.
fn show(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    let fresh = folder.join(format!("{name}.new"));
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o644);
    options.open(&fresh)?.write_all(text.as_bytes())?;
    fs::rename(fresh, folder.join(name))
}

/// The certificates that this machine trusts, for a sandbox without a bundle of its own. Blocks.
fn hosts() -> String {
    let texts = SYSTEM.iter().filter_map(|path| fs::read_to_string(path).ok());
    texts.into_iter().find(|text| text.contains(PEM)).unwrap_or_default()
}

/// The bundle of the sandbox's own system, with its path.
async fn system(agent: AgentAddress<'_>) -> Result<Option<(&'static str, String)>, Error> {
    for path in SYSTEM {
        if let Some(text) =
            fetch(agent, path, BUNDLE_BYTES_MAX).await?.filter(|text| text.contains(PEM))
        {
            return Ok(Some((path, text)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: Q21.
    #[test]
    fn a_bundle_has_one_certificate_of_ours_and_loses_it_without_a_trace() {
        for own in ["", "one\n", "one\ntwo", "-----\n"] {
            let first = with(own, "AAA\n");
            assert!(first.contains("AAA"));
            let again = with(&stripped(&first), "BBB");
            assert!(again.contains("BBB") && !again.contains("AAA"), "{again}");
            assert_eq!(again.matches(BEGIN).count(), 1);
            assert_eq!(stripped(&again).trim_end(), own.trim_end());
        }
        // Certificates that another program appended stay in place.
        let more = format!("{}more\n", with("one\n", "AAA"));
        assert_eq!(stripped(&more), "one\nmore\n");
        assert_eq!(stripped(&format!("one\n{BEGIN}\ncut off")), "one\n");
    }
}
