//! What this crate reads from certificates and revocation lists.

use crate::names::{self, NoNodeName};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isolet_wire::node::NodeName;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use sha2::{Digest, Sha256};
use std::borrow::Borrow;
use x509_parser::certificate::X509Certificate;
use x509_parser::revocation_list::CertificateRevocationList;

/// Characters of a line of PEM.
const PEM_COLUMNS: usize = 64;

/// Why a certificate or a list is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCertificate {
    /// Not PEM.
    #[error("it is not valid PEM: {0}")]
    Pem(String),
    /// Not X.509.
    #[error("it is not a valid X.509 {0}")]
    Encoding(&'static str),
    /// A file without the block that it should have.
    #[error("it contains no -----BEGIN {0}-----")]
    Empty(&'static str),
    /// The certificate of something else than a node.
    #[error(transparent)]
    Name(#[from] NoNodeName),
}

/// The certificate of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) node: NodeName,
    /// Hexadecimal digits.
    pub(crate) serial: String,
    /// Seconds since 1970.
    pub(crate) expires_at_s: i64,
}

impl Leaf {
    pub(crate) fn parse(der: &CertificateDer<'_>) -> Result<Self, BadCertificate> {
        let certificate = certificate(der)?;
        Ok(Self {
            node: names::node_of(&certificate)?,
            serial: hex::encode(certificate.raw_serial()),
            expires_at_s: certificate.validity().not_after.timestamp(),
        })
    }
}

/// The certificate of an authority.
#[derive(Debug, Clone)]
pub(crate) struct Anchor {
    pub(crate) name: String,
    /// SHA-256 of the certificate, in hexadecimal digits.
    pub(crate) fingerprint: String,
    /// Seconds since 1970.
    pub(crate) expires_at_s: i64,
    pub(crate) der: CertificateDer<'static>,
}

impl Anchor {
    pub(crate) fn parse(der: CertificateDer<'static>) -> Result<Self, BadCertificate> {
        let parsed = certificate(&der)?;
        if !parsed.is_ca() {
            return Err(BadCertificate::Encoding("certificate of a CA"));
        }
        let name = parsed.subject().to_string();
        let expires_at_s = parsed.validity().not_after.timestamp();
        let bytes: &[u8] = der.borrow();
        let fingerprint = hex::encode(Sha256::digest(bytes));
        Ok(Self { name, fingerprint, expires_at_s, der })
    }
}

/// A revocation list that an authority signed.
#[derive(Debug, Clone)]
pub(crate) struct RevocationList {
    /// Increases with each list of the authority.
    pub(crate) number: u64,
    /// When the authority should have signed the next one, in seconds since 1970.
    pub(crate) next_update_s: Option<i64>,
    /// Revoked certificates.
    pub(crate) count: usize,
    pub(crate) der: CertificateRevocationListDer<'static>,
}

impl RevocationList {
    /// The list as PEM.
    pub(crate) fn to_pem(&self) -> String {
        list_to_pem(&self.der)
    }

    /// The newest of several lists that an authority signed, if any. Lists of other authorities,
    /// and lists whose signature is wrong, are left out.
    pub(crate) fn newest_of(
        authority: &Anchor,
        lists: &[CertificateRevocationListDer<'static>],
    ) -> Result<Option<Self>, BadCertificate> {
        let authority = certificate(&authority.der)?;
        let mut newest: Option<Self> = None;
        for der in lists {
            let list = list(der)?;
            let is_own = list.issuer().as_raw() == authority.subject().as_raw()
                && list.verify_signature(authority.public_key()).is_ok();
            let number = list_number(&list);
            if is_own && newest.as_ref().is_none_or(|newest| newest.number < number) {
                newest = Some(Self {
                    number,
                    next_update_s: list.next_update().map(|time| time.timestamp()),
                    count: list.iter_revoked_certificates().count(),
                    der: der.clone(),
                });
            }
        }
        Ok(newest)
    }
}

/// The lowest number of the lists in a PEM file, of any authority; `None` without a list.
pub(crate) fn lowest_list_number(text: &[u8]) -> Result<Option<u64>, BadCertificate> {
    let mut lowest = None;
    for der in lists_of(text)? {
        let number = list_number(&list(&der)?);
        lowest = Some(lowest.map_or(number, |lowest: u64| lowest.min(number)));
    }
    Ok(lowest)
}

/// The certificates of a PEM file, at least one.
pub(crate) fn certificates_of(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, BadCertificate> {
    let all: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(text).collect();
    let all = all.map_err(|error| BadCertificate::Pem(error.to_string()))?;
    if all.is_empty() { Err(BadCertificate::Empty("CERTIFICATE")) } else { Ok(all) }
}

/// A revocation list as PEM.
pub(crate) fn list_to_pem(list: &CertificateRevocationListDer<'static>) -> String {
    let encoded = STANDARD.encode(list);
    let mut text = String::from("-----BEGIN X509 CRL-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(PEM_COLUMNS));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str("-----END X509 CRL-----\n");
    text
}

/// The revocation lists of a PEM file, maybe none.
pub(crate) fn lists_of(
    text: &[u8],
) -> Result<Vec<CertificateRevocationListDer<'static>>, BadCertificate> {
    let all: Result<Vec<_>, pem::Error> =
        CertificateRevocationListDer::pem_slice_iter(text).collect();
    all.map_err(|error| BadCertificate::Pem(error.to_string()))
}

fn certificate<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, BadCertificate> {
    let der: &'a [u8] = der.borrow();
    let parsed = x509_parser::parse_x509_certificate(der);
    parsed.map(|(_, parsed)| parsed).map_err(|_| BadCertificate::Encoding("certificate"))
}

fn list<'a>(
    der: &'a CertificateRevocationListDer<'_>,
) -> Result<CertificateRevocationList<'a>, BadCertificate> {
    let der: &'a [u8] = der.as_ref();
    let parsed = x509_parser::parse_x509_crl(der);
    parsed.map(|(_, parsed)| parsed).map_err(|_| BadCertificate::Encoding("revocation list"))
}

/// The number of a list; 0 without one.
fn list_number(list: &CertificateRevocationList<'_>) -> u64 {
    let number = list.crl_number().map(|number| number.to_u64_digits());
    match number.as_deref() {
        None | Some([]) => 0,
        Some([number]) => *number,
        Some(_) => u64::MAX,
    }
}
