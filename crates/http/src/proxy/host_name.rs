//! Host names of ports: `PORT-ID.DOMAIN`, each an origin of its own.
//!
//! The name says which port of which id; whose sandbox that is, the key or link says. A sandbox of
//! another tenant than `default` has a mark in its name, so that no two ever share an origin.

use crate::{auth::origin, proxy::target::parse_port};
use axum::http::{HeaderMap, header};
use isolet_sandbox::{SandboxId, TenantId};
use sha2::{Digest, Sha256};

/// The longest part of a host name, in bytes.
const LABEL_BYTES_MAX: usize = 63;

/// Before the mark of a tenant; no id with a name of its own holds it.
const MARK: &str = "--t";

/// Digits of that mark.
const MARK_DIGITS: usize = 16;

/// Letters behind `sb_` of an id that the server made.
const RANDOM_LETTERS: usize = 26;

/// The first part of the name of a port's host; `None` where the id cannot be part of one.
pub(crate) fn label(tenant: &TenantId, sandbox: &SandboxId, port: u16) -> Option<String> {
    let id = sandbox.as_str();
    let random = |rest: &str| {
        rest.len() == RANDOM_LETTERS
            && rest.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'2'..=b'7'))
    };
    let id = match (id.strip_prefix("sb_"), id.strip_prefix("sb-")) {
        // Underlines are not for host names.
        (Some(rest), _) if random(rest) => format!("sb-{rest}"),
        // What the server's own are called there.
        (_, Some(rest)) if random(rest) => return None,
        _ => id.to_owned(),
    };
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if id.contains(MARK) || !id.bytes().all(plain) || id.ends_with('-') {
        return None;
    }
    let label = format!("{port}-{id}{}", tenant_mark(tenant));
    (label.len() <= LABEL_BYTES_MAX).then_some(label)
}

/// Behind an id; nothing for the tenant `default`.
fn tenant_mark(tenant: &TenantId) -> String {
    if *tenant == TenantId::default_tenant() {
        return String::new();
    }
    let digest = Sha256::digest(tenant.as_str().as_bytes());
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{MARK}{}", &digits[..MARK_DIGITS])
}

/// The port and sandbox that a name means to this tenant.
pub(super) fn parse_label(name: &str, tenant: &TenantId) -> Option<(SandboxId, u16)> {
    let (digits, rest) = name.split_once('-')?;
    let port = parse_port(digits).ok()?;
    let id = rest.strip_suffix(tenant_mark(tenant).as_str())?;
    let own = id.strip_prefix("sb-").map(|rest| format!("sb_{rest}"));
    let all = [Some(id.to_owned()), own];
    let all = all.into_iter().flatten().filter_map(|id| SandboxId::parse(&id).ok());
    let found = all.into_iter().find(|id| label(tenant, id, port).as_deref() == Some(name))?;
    Some((found, port))
}

/// The first part of a request's host name, where that is one below the domain of ports.
pub(crate) fn label_in_host(domain: &str, headers: &HeaderMap) -> Option<String> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return None };
    let host = origin::authority(host)?;
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
    use axum::http::HeaderValue;

    fn of_id(id: &str) -> Option<String> {
        label(&TenantId::default_tenant(), &SandboxId::parse(id).unwrap(), 80)
    }

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
        // Neither what is no host name nor what could be another's has one.
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
