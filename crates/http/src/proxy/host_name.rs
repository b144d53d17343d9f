//! Host names of ports: `PORT-ID.DOMAIN`, each with an origin of its own.
//!
//! The name contains port and sandbox id; the tenant follows from the key or the link. Names of all
//! tenants but `default` contain a hash of the tenant, so that no two tenants share an origin.

use crate::auth::origin;
use crate::proxy::target::parse_port;
use axum::http::HeaderMap;
use isolet_sandbox::{SandboxId, TenantId};
use sha2::{Digest, Sha256};

/// The longest label of a host name, in bytes.
const LABEL_BYTES_MAX: usize = 63;

/// Precedes the hash of the tenant. Ids that contain it have no host name.
pub(crate) const TENANT_MARK: &str = "--t";

/// Hex digits of that hash.
const MARK_DIGITS: usize = 16;

/// Letters after `sb_` in ids that the server generates.
const RANDOM_LETTERS: usize = 26;

/// The first label of a port's host name; `None` when the id cannot be part of one.
pub(crate) fn label(tenant: &TenantId, sandbox: &SandboxId, port: u16) -> Option<String> {
    let id = sandbox.as_str();
    let random = |rest: &str| {
        rest.len() == RANDOM_LETTERS
            && rest.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'2'..=b'7'))
    };
    let id = match (id.strip_prefix("sb_"), id.strip_prefix("sb-")) {
        // Host names contain no underscores.
        (Some(rest), _) if random(rest) => format!("sb-{rest}"),
        // Reserved for ids that the server generates.
        (_, Some(rest)) if random(rest) => return None,
        _ => id.to_owned(),
    };
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if id.contains(TENANT_MARK) || !id.bytes().all(plain) || id.ends_with('-') {
        return None;
    }
    let label = format!("{port}-{id}{}", tenant_mark(tenant));
    (label.len() <= LABEL_BYTES_MAX).then_some(label)
}

/// The suffix after an id; empty for the tenant `default`.
fn tenant_mark(tenant: &TenantId) -> String {
    if *tenant == TenantId::default_tenant() {
        return String::new();
    }
    let digest = Sha256::digest(tenant.as_str().as_bytes());
    let digits = hex::encode(digest);
    format!("{TENANT_MARK}{}", &digits[..MARK_DIGITS])
}

/// Whether a label can be that of a port: [`label`] writes each in one way.
pub(crate) fn is_label(name: &str) -> bool {
    let Some((digits, rest)) = name.split_once('-') else { return false };
    let (id, mark) =
        rest.split_once(TENANT_MARK).map_or((rest, None), |(id, mark)| (id, Some(mark)));
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_mark = |mark: &str| mark.len() == MARK_DIGITS && mark.bytes().all(is_hex);
    name.len() <= LABEL_BYTES_MAX
        && parse_port(digits).is_ok()
        && SandboxId::parse(id).is_ok()
        && !id.ends_with('-')
        && mark.is_none_or(is_mark)
}

/// The sandbox and port that a label stands for when this tenant uses it.
pub(crate) fn parse_label(name: &str, tenant: &TenantId) -> Option<(SandboxId, u16)> {
    let (digits, rest) = name.split_once('-')?;
    let port = parse_port(digits).ok()?;
    let id = rest.strip_suffix(tenant_mark(tenant).as_str())?;
    let own = id.strip_prefix("sb-").map(|rest| format!("sb_{rest}"));
    let all = [Some(id.to_owned()), own];
    let all = all.into_iter().flatten().filter_map(|id| SandboxId::parse(&id).ok());
    let found = all.into_iter().find(|id| label(tenant, id, port).as_deref() == Some(name))?;
    Some((found, port))
}

/// The first label of the request's host name, when it is directly below the domain for ports.
pub(crate) fn label_in_host(domain: &str, headers: &HeaderMap) -> Option<String> {
    let host = origin::authority(origin::single_host(headers)?)?;
    if host.as_str().len() != host.host().len() && host.port_u16().is_none() {
        return None;
    }
    let name = host.host().to_ascii_lowercase();
    let label = name.strip_suffix(domain)?.strip_suffix('.')?;
    (!label.is_empty() && !label.contains('.')).then(|| label.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderValue, header};

    fn of_id(id: &str) -> Option<String> {
        label(&TenantId::default_tenant(), &SandboxId::parse(id).unwrap(), 80)
    }

    /// Promises: O9.
    #[test]
    fn a_name_means_one_port_of_one_sandbox_of_one_tenant() {
        let own = TenantId::default_tenant();
        let other = TenantId::parse("other").unwrap();
        let random = SandboxId::random();
        for id in ["demo", "a-b", "9", random.as_str()] {
            let id = SandboxId::parse(id).unwrap();
            for tenant in [&own, &other] {
                let name = label(tenant, &id, 5173).unwrap();
                assert!(name.starts_with("5173-") && !name.contains('_'), "{name}");
                assert_eq!(parse_label(&name, tenant), Some((id.clone(), 5173)));
            }
            let one = label(&own, &id, 80).unwrap();
            let two = label(&other, &id, 80).unwrap();
            assert!(
                one != two
                    && parse_label(&one, &other).is_none()
                    && parse_label(&two, &own).is_none()
            );
        }
        // Ids that are no valid label, or whose label another id could have, have no host name.
        let like = format!("demo{}", tenant_mark(&other));
        let long = "x".repeat(64);
        let as_random = random.as_str().replace('_', "-");
        for id in ["Demo", "a.b", "a_b", "a-", &like, &long, &as_random] {
            assert_eq!(of_id(id), None, "{id}");
        }
        for bad in ["80", "80-", "-demo", "x-demo", "080-demo", "0-demo", "65536-demo", "80-a.b"] {
            assert_eq!(parse_label(bad, &own), None, "{bad}");
        }
    }

    /// Promises: O9.
    #[test]
    fn only_one_part_below_the_domain_is_a_ports_name() {
        let of = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            label_in_host("box.example", &headers)
        };
        assert_eq!(of("80-demo.box.example").as_deref(), Some("80-demo"));
        assert_eq!(of("80-Demo.BOX.example:7300").as_deref(), Some("80-demo"));
        for other in [
            "box.example",
            ".box.example",
            "a.b.box.example",
            "xbox.example",
            "80-demo.box.example.evil",
            "u@80-demo.box.example",
            "80-demo.box.example:x",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        let mut headers = HeaderMap::new();
        headers.append(header::HOST, HeaderValue::from_static("80-a.box.example"));
        headers.append(header::HOST, HeaderValue::from_static("80-a.box.example"));
        assert_eq!(super::label_in_host("box.example", &headers), None);
    }
}
