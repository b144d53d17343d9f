//! Requests to a port's own host name. A key, the token of a signed link, or the cookie that
//! replaces the token grants access.

use crate::app::App;
use crate::auth::authenticator::Authenticator;
use crate::auth::caller::{Caller, read_only_key};
use crate::auth::origin;
use crate::auth::port_link::{self, SignedLink};
use crate::foundation::error::ApiError;
use crate::foundation::extensions::{Proxied, Scheme};
use crate::proxy::target::{COOKIE, TOKEN, Target, UrlKind};
use crate::proxy::{forward, headers, host_name};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;

/// A request with access to the port.
struct Admission {
    caller: Caller,
    target: Target,
    /// The token in the URL, which becomes a cookie.
    token: Option<String>,
}

/// Answers a request to a port's host name. Also returns the caller when the request has a key.
pub(crate) async fn answer(
    app: &App,
    authenticator: &Authenticator,
    name: &str,
    request: Request<Body>,
) -> (Response, Option<Caller>) {
    let entered = match authorize(app, authenticator, name, &request) {
        Ok(entered) => entered,
        Err(failure) => return (failure.into_response(), None),
    };
    if let Some(token) = entered.token.filter(|_| is_navigation(&request)) {
        return (redirect_with_cookie(&request, &token, entered.target.ends), None);
    }
    let caller = entered.caller;
    let by_key = entered.target.ends.is_none().then(|| caller.clone());
    let passed = forward::forward(app.clone(), &caller, entered.target, request).await;
    (passed.unwrap_or_else(IntoResponse::into_response), by_key)
}

fn authorize(
    app: &App,
    authenticator: &Authenticator,
    name: &str,
    request: &Request<Body>,
) -> Result<Admission, ApiError> {
    let uri = request.uri();
    let headers = request.headers();
    let own_target = uri.authority().is_none_or(|target| {
        headers.get(header::HOST).is_some_and(|host| host.as_bytes() == target.as_str().as_bytes())
    });
    if !own_target {
        return Err(origin::misdirected());
    }
    // Another node may have found the caller.
    let known = match request.extensions().get::<Caller>() {
        Some(caller) => Some(caller.clone()),
        None => authenticator.caller_of_key(headers)?,
    };
    let entry = UrlKind::Host { keep_authorization: known.is_none(), own_page: own_page(request) };
    let client = request.extensions().get();
    let opened = |token: &str| -> Result<Option<SignedLink>, ApiError> {
        let link = port_link::verify(&app.service, &app.link_guesses, client, token)?;
        Ok(link.filter(|link| {
            let own = host_name::label(&link.caller.tenant, &link.sandbox, link.port);
            own.as_deref() == Some(name)
        }))
    };
    let entered = |link: SignedLink, token: Option<String>| {
        let ends = Some(Instant::now() + link.time_left());
        let target = Target { sandbox: link.sandbox, port: link.port, entry: entry.clone(), ends };
        Admission { caller: link.caller, target, token }
    };
    if let Some(token) = token(uri) {
        let link = opened(token)?.ok_or_else(port_link::bad_link)?;
        return Ok(entered(link, Some(token.to_owned())));
    }
    for token in cookies(headers) {
        if let Some(link) = opened(token)? {
            check_same_origin(request)?;
            return Ok(entered(link, None));
        }
    }
    let caller = known.ok_or_else(port_link::bad_link)?;
    if caller.read_only {
        return Err(read_only_key("use a key that was created without --read-only"));
    }
    let (sandbox, port) = host_name::parse_label(name, &caller.tenant).ok_or_else(no_sandbox)?;
    let target = Target { sandbox, port, entry: entry.clone(), ends: None };
    Ok(Admission { caller, target, token: None })
}

/// 404: the host name is that of no port of a sandbox.
pub(crate) fn no_sandbox() -> ApiError {
    let hint = "create it with POST /v1/sandboxes";
    ApiError::new(StatusCode::NOT_FOUND, "no_sandbox", "no such sandbox", hint)
}

/// Whether a request has the token of a link, in its URL or its cookie.
pub(crate) fn has_link(uri: &Uri, headers: &HeaderMap) -> bool {
    token(uri).is_some() || cookies(headers).next().is_some()
}

/// What the tokens of a request say, in the order in which they are tried. They grant nothing.
pub(crate) fn unverified_links<'a>(
    uri: &'a Uri,
    headers: &'a HeaderMap,
) -> impl Iterator<Item = SignedLink> + use<'a> {
    // With a token in the URL no cookie counts.
    let token = token(uri);
    let cookies = cookies(headers).filter(move |_| token.is_none());
    token.into_iter().chain(cookies).filter_map(port_link::unverified)
}

fn token(uri: &Uri) -> Option<&str> {
    let mut pairs = uri.query().unwrap_or_default().split('&');
    pairs.find_map(|pair| pair.strip_prefix(TOKEN)?.strip_prefix('='))
}

fn cookies<'a>(headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> + use<'a> {
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let pairs = all.flat_map(|value| value.split(';')).map(str::trim);
    pairs.filter_map(|pair| pair.strip_prefix(COOKIE)?.strip_prefix('='))
}

/// Whether the request comes from a page of this host.
fn own_page(request: &Request<Body>) -> bool {
    let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let scheme = Scheme::of(request.extensions());
    let origin = text(header::ORIGIN);
    let host = text(header::HOST);
    origin.zip(host).is_some_and(|(origin, host)| origin::is_of_host(origin, scheme, host))
}

/// Browsers send cookies also with requests of other pages, so a cookie only counts for the host's
/// own pages and for navigation.
fn check_same_origin(request: &Request<Body>) -> Result<(), ApiError> {
    let headers = request.headers();
    let is = |name: &str, value: &str| headers.get(name).is_some_and(|is| is == value);
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let goes = is("sec-fetch-mode", "navigate") && reads;
    let site = !headers.contains_key("sec-fetch-site")
        || is("sec-fetch-site", "same-origin")
        || is("sec-fetch-site", "none");
    let page = !headers.contains_key(header::ORIGIN) || own_page(request);
    if page && (site || goes) { Ok(()) } else { Err(origin::bad_origin()) }
}

/// Whether a browser navigates to this URL.
fn is_navigation(request: &Request<Body>) -> bool {
    let headers = request.headers();
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let page = text("sec-fetch-mode") == Some("navigate")
        || text("accept").is_some_and(|accept| accept.contains("text/html"));
    request.method() == Method::GET && !headers.contains_key(header::UPGRADE) && page
}

/// Moves the token from the URL to a cookie for this host, and redirects to the URL without it.
fn redirect_with_cookie(request: &Request<Body>, token: &str, ends: Option<Instant>) -> Response {
    let left = ends.map_or(0, |ends| ends.saturating_duration_since(Instant::now()).as_secs());
    let secure = Scheme::of(request.extensions()) == Scheme::Https;
    let secure = if secure { "; Secure" } else { "" };
    let cookie =
        format!("{COOKIE}={token}; Path=/; Max-Age={left}; HttpOnly; SameSite=Lax{secure}");
    let path = request.uri().path();
    if path.starts_with("/\\") {
        // Browsers read a backslash as a slash, and `//x` as another host.
        return ApiError::bad_request("the path begins with /\\").into_response();
    }
    // `//x` would be another host.
    let dot = if path.starts_with("//") { "/." } else { "" };
    let kept = headers::query_without(request.uri().query().unwrap_or_default(), TOKEN);
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
    response.extensions_mut().insert(Proxied { own_origin: true });
    response
}
