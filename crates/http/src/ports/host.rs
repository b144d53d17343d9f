//! Host names of ports: `PORT-ID.DOMAIN`, each an origin of its own.
//!
//! The name says which port of which id; whose sandbox that is, the key or link says. A sandbox of
//! another tenant than `default` has a mark in its name, so that no two ever share an origin.

use super::{COOKIE, Foreign, Target, heads::Way, links, links::Link, port};
use crate::{
    auth::{self, Caller, Doors},
    error::Failure,
    origin,
    server::App,
};
use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use isolet_sandbox::{SandboxId, TenantId};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// What a link's token is called in a query.
pub(crate) const TOKEN: &str = "isolet-token";
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
    let label = format!("{port}-{id}{}", mark(tenant));
    (label.len() <= LABEL_BYTES_MAX).then_some(label)
}

/// Behind an id; nothing for the tenant `default`.
fn mark(tenant: &TenantId) -> String {
    if *tenant == TenantId::default_tenant() {
        return String::new();
    }
    let digest = Sha256::digest(tenant.as_str().as_bytes());
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{MARK}{}", &digits[..MARK_DIGITS])
}

/// The port and sandbox that a name means to this tenant.
fn meant(name: &str, tenant: &TenantId) -> Option<(SandboxId, u16)> {
    let (digits, rest) = name.split_once('-')?;
    let port = port(digits).ok()?;
    let id = rest.strip_suffix(mark(tenant).as_str())?;
    let own = id.strip_prefix("sb-").map(|rest| format!("sb_{rest}"));
    let all = [Some(id.to_owned()), own];
    let all = all.into_iter().flatten().filter_map(|id| SandboxId::parse(&id).ok());
    let found = all.into_iter().find(|id| label(tenant, id, port).as_deref() == Some(name))?;
    Some((found, port))
}

/// The first part of a request's host name, where that is one below the domain of ports.
pub(crate) fn of(domain: &str, headers: &HeaderMap) -> Option<String> {
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

/// Who came in, and by what.
struct Entered {
    caller: Caller,
    target: Target,
    /// The token of the address, which is to become a cookie.
    token: Option<String>,
}

/// Answers a request to a port's host; beside it who asked with a key.
pub(crate) async fn answer(
    (app, doors): (&App, &Doors),
    name: &str,
    request: Request<Body>,
) -> (Response, Option<Caller>) {
    let entered = match enter(app, doors, name, &request) {
        Ok(entered) => entered,
        Err(failure) => return (failure.into_response(), None),
    };
    if let Some(token) = entered.token.filter(|_| navigates(&request)) {
        return (settle(&request, &token, entered.target.ends), None);
    }
    let caller = entered.caller;
    let by_key = entered.target.ends.is_none().then(|| caller.clone());
    let passed = super::pass(app.clone(), &caller, entered.target, request).await;
    (passed.unwrap_or_else(IntoResponse::into_response), by_key)
}

fn enter(
    app: &App,
    doors: &Doors,
    name: &str,
    request: &Request<Body>,
) -> Result<Entered, Failure> {
    let (uri, headers) = (request.uri(), request.headers());
    let own_target = uri.authority().is_none_or(|target| {
        headers.get(header::HOST).is_some_and(|host| host.as_bytes() == target.as_str().as_bytes())
    });
    if !own_target {
        return Err(origin::misdirected());
    }
    let known = doors.known(headers)?;
    let way = Way::Host { keep_authorization: known.is_none(), own_page: own_page(headers) };
    let opened = |token: &str| {
        let link = links::open(&app.service, token)?;
        let right = label(&link.caller.tenant, &link.sandbox, link.port).as_deref() == Some(name);
        right.then_some(link)
    };
    let entered = |link: Link, token: Option<String>| {
        let ends = Some(Instant::now() + link.left());
        let target = Target { sandbox: link.sandbox, port: link.port, way: way.clone(), ends };
        Entered { caller: link.caller, target, token }
    };
    if let Some(token) = token(uri) {
        let link = opened(token).ok_or_else(links::bad_link)?;
        return Ok(entered(link, Some(token.to_owned())));
    }
    if let Some(link) = cookies(headers).find_map(opened) {
        own_request(request)?;
        return Ok(entered(link, None));
    }
    let caller = known.ok_or_else(links::bad_link)?;
    if caller.read_only {
        return Err(auth::read_only("use a key that was made without --read-only"));
    }
    let (sandbox, port) = meant(name, &caller.tenant).ok_or_else(|| {
        let hint = "create it with POST /v1/sandboxes";
        Failure::new(StatusCode::NOT_FOUND, "no_sandbox", "no such sandbox", hint)
    })?;
    let target = Target { sandbox, port, way: way.clone(), ends: None };
    Ok(Entered { caller, target, token: None })
}

fn token(uri: &Uri) -> Option<&str> {
    let mut pairs = uri.query().unwrap_or_default().split('&');
    pairs.find_map(|pair| pair.strip_prefix(TOKEN)?.strip_prefix('='))
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let pairs = all.flat_map(|value| value.split(';')).map(str::trim);
    pairs.filter_map(|pair| pair.strip_prefix(COOKIE)?.strip_prefix('='))
}

/// Whether the page that asks is this host's own.
fn own_page(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let (origin, host) = (text(header::ORIGIN), text(header::HOST));
    let origin = origin.and_then(|it| it.strip_prefix("http://").or(it.strip_prefix("https://")));
    origin.is_some_and(|origin| host.is_some_and(|host| host.eq_ignore_ascii_case(origin)))
}

/// A cookie comes by itself, also when another page asks: then it counts only for one who goes
/// there to look.
fn own_request(request: &Request<Body>) -> Result<(), Failure> {
    let headers = request.headers();
    let is = |name: &str, value: &str| headers.get(name).is_some_and(|is| is == value);
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let goes = is("sec-fetch-mode", "navigate") && reads;
    let site = !headers.contains_key("sec-fetch-site")
        || is("sec-fetch-site", "same-origin")
        || is("sec-fetch-site", "none");
    let page = !headers.contains_key(header::ORIGIN) || own_page(headers);
    if page && (site || goes) { Ok(()) } else { Err(origin::bad_origin()) }
}

/// Whether a person goes there, rather than a program.
fn navigates(request: &Request<Body>) -> bool {
    let headers = request.headers();
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let page = text("sec-fetch-mode") == Some("navigate")
        || text("accept").is_some_and(|accept| accept.contains("text/html"));
    request.method() == Method::GET && !headers.contains_key(header::UPGRADE) && page
}

/// Makes the token of an address a cookie of this host alone, and the address one without it.
fn settle(request: &Request<Body>, token: &str, ends: Option<Instant>) -> Response {
    let left = ends.map_or(0, |ends| ends.saturating_duration_since(Instant::now()).as_secs());
    let secure = request.headers().get("x-forwarded-proto").is_some_and(|proto| proto == "https");
    let secure = if secure { "; Secure" } else { "" };
    let cookie =
        format!("{COOKIE}={token}; Path=/; Max-Age={left}; HttpOnly; SameSite=Lax{secure}");
    let path = request.uri().path();
    // `//x` would be another host.
    let dot = if path.starts_with("//") { "/." } else { "" };
    let kept = super::heads::without(request.uri().query().unwrap_or_default(), TOKEN);
    let location = format!("{dot}{path}{}{kept}", if kept.is_empty() { "" } else { "?" });
    let mut response = StatusCode::SEE_OTHER.into_response();
    let headers = response.headers_mut();
    for (name, value) in [(header::LOCATION, location), (header::SET_COOKIE, cookie)] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response.extensions_mut().insert(Foreign { own_origin: true });
    response
}

#[cfg(test)]
mod tests {
    use super::*;

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
                assert_eq!(meant(&name, tenant), Some((id.clone(), 5173)));
            }
            let (one, two) = (label(&own, &id, 80).unwrap(), label(&other, &id, 80).unwrap());
            assert!(one != two && meant(&one, &other).is_none() && meant(&two, &own).is_none());
        }
        // Neither what is no host name nor what could be another's has one.
        let like = format!("demo{}", mark(&other));
        let long = "x".repeat(64);
        let as_random = random.as_str().replace('_', "-");
        for id in ["Demo", "a.b", "a_b", "a-", &like, &long, &as_random] {
            assert_eq!(of_id(id), None, "{id}");
        }
        for bad in ["80", "80-", "-demo", "x-demo", "080-demo", "0-demo", "65536-demo", "80-a.b"] {
            assert_eq!(meant(bad, &own), None, "{bad}");
        }
    }

    #[test]
    fn only_one_part_below_the_domain_is_a_ports_name() {
        let of = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            of("box.example", &headers)
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
        assert_eq!(super::of("box.example", &headers), None);
    }
}
