//! One authority: its certificate and key, and what it signs.

use crate::certificates::error::CertificateError;
use crate::certificates::index::{AuthorityRecord, AuthorityState, CertificateRecord};
use crate::certificates::serial::Serial;
use crate::certificates::{AUTHORITY_DAYS, DAY_S};
use crate::{files, names};
use isolet_wire::node::NodeName;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevocationReason, RevokedCertParams, SanType, SerialNumber,
};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use time::OffsetDateTime;

/// How far certificates begin in the past, in seconds: clocks of nodes may be behind.
const BACKDATED_S: i64 = 3600;
/// How long a revocation list is current, in days: more than two lives of a certificate, because
/// each renewal signs a new list.
const LIST_DAYS: i64 = 180;
/// Random bytes in the name of an authority.
const NAME_BYTES: usize = 4;

/// An authority with its key.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its private key, as PEM.
pub(super) struct SignedPair {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Authority {
    /// Creates an authority and writes its key. Blocks.
    pub(super) fn create(
        directory: &Path,
        id: u32,
        state: AuthorityState,
        now_s: i64,
    ) -> Result<AuthorityRecord, CertificateError> {
        let mut random = [0; NAME_BYTES];
        getrandom::fill(&mut random)?;
        let name = format!("Isolet cluster CA {id} {}", hex::encode(random));
        let expires_at_s = now_s.saturating_add(i64::from(AUTHORITY_DAYS) * DAY_S);
        let mut params = params(&name);
        params.serial_number = Some(Serial::random()?.to_rcgen());
        params.not_before = moment(now_s - BACKDATED_S)?;
        params.not_after = moment(expires_at_s)?;
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        let path = key_path(directory, id);
        files::replace(&path, key.serialize_pem().as_bytes())
            .map_err(CertificateError::file(&path))?;
        Ok(AuthorityRecord { id, name, state, expires_at_s, certificate })
    }

    /// Reads the key of an authority. Blocks.
    pub(super) fn open(
        directory: &Path,
        record: &AuthorityRecord,
    ) -> Result<Self, CertificateError> {
        let path = key_path(directory, record.id);
        let mode = std::fs::metadata(&path).map_err(CertificateError::file(&path))?.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(CertificateError::KeyOpen { path, mode });
        }
        let text = files::read(&path).map_err(CertificateError::file(&path))?;
        let key = std::str::from_utf8(&text).ok().and_then(|text| KeyPair::from_pem(text).ok());
        let key = key.ok_or_else(|| CertificateError::Damaged {
            path,
            reason: "it contains no private key".to_owned(),
        })?;
        Ok(Self { issuer: Issuer::new(params(&record.name), key) })
    }

    /// Signs a certificate with a new key for a node, which uses it as server and as client.
    pub(super) fn sign(&self, record: &CertificateRecord) -> Result<SignedPair, CertificateError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished(record.node.as_str());
        params.subject_alt_names = vec![subject(&record.node)?];
        params.serial_number = Some(record.serial.to_rcgen());
        params.not_before = moment(record.issued_at_s - BACKDATED_S)?;
        params.not_after = moment(record.expires_at_s)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(SignedPair { certificate, key: key.serialize_pem() })
    }

    /// Signs the list of revoked certificates, as PEM.
    pub(super) fn sign_list<'a>(
        &self,
        revoked: impl Iterator<Item = &'a CertificateRecord>,
        number: u64,
        now_s: i64,
    ) -> Result<String, CertificateError> {
        let mut entries = Vec::new();
        for record in revoked {
            let Some(revoked_at_s) = record.revoked_at_s else { continue };
            entries.push(RevokedCertParams {
                serial_number: record.serial.to_rcgen(),
                revocation_time: moment(revoked_at_s)?,
                reason_code: Some(RevocationReason::Unspecified),
                invalidity_date: None,
            });
        }
        let list = CertificateRevocationListParams {
            // Lists are compared by number, and clocks of nodes may be behind.
            this_update: moment(now_s - BACKDATED_S)?,
            next_update: moment(now_s.saturating_add(LIST_DAYS * DAY_S))?,
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: None,
            revoked_certs: entries,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(list.signed_by(&self.issuer)?.pem()?)
    }
}

/// The parameters that the certificate of an authority and everything that it signs have in common.
fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished(name);
    // It signs certificates of nodes and none of further authorities.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn distinguished(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn subject(node: &NodeName) -> Result<SanType, rcgen::Error> {
    Ok(SanType::DnsName(names::dns_name(node).try_into()?))
}

pub(super) fn key_path(directory: &Path, id: u32) -> PathBuf {
    directory.join(format!("ca-{id}-key.pem"))
}

fn moment(seconds: i64) -> Result<OffsetDateTime, rcgen::Error> {
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| rcgen::Error::Time)
}
