//! Tests of the client's address, scheme and host behind proxies.

use super::*;
use axum::http::HeaderName;
use proptest::prelude::*;

fn proxies() -> TrustedProxies {
    let texts = ["127.0.0.1", "10.0.0.0/8", "::1", "fd00::/8"].map(str::to_owned);
    TrustedProxies::parse(&texts).unwrap()
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, HeaderValue::from_static("inner:7300"));
    for (name, value) in pairs {
        headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    headers
}

/// The client's address, the scheme, and the host, for a connection from `peer`.
fn client(peer: &str, pairs: &[(&str, &str)]) -> (String, Scheme, String) {
    let mut headers = headers(pairs);
    let peer = peer.parse().unwrap();
    let client = proxies().client_of(peer, Scheme::Http, &mut headers);
    let host = headers[header::HOST].to_str().unwrap().to_owned();
    (client.address.to_string(), client.scheme, host)
}

#[test]
fn only_addresses_and_networks_are_proxies() {
    for bad in ["", "localhost", "10.0.0.0/33", "10.0.0.1:80", "*"] {
        assert_eq!(TrustedProxies::parse(&[bad.to_owned()]).unwrap_err(), bad);
    }
}

#[test]
fn headers_of_an_untrusted_peer_are_ignored() {
    let pairs = [
        ("x-forwarded-for", "192.0.2.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "box.example"),
        ("forwarded", "for=192.0.2.1;proto=https;host=box.example"),
    ];
    let direct = ("192.0.2.9".to_owned(), Scheme::Http, "inner:7300".to_owned());
    assert_eq!(client("192.0.2.9", &pairs), direct);
    let mut left = headers(&pairs);
    proxies().client_of("192.0.2.9".parse().unwrap(), Scheme::Http, &mut left);
    assert_eq!(left, headers(&pairs), "programs in sandboxes still receive them");
}

#[test]
fn the_rightmost_untrusted_address_is_the_client() {
    for (list, expected) in [
        ("192.0.2.1", "192.0.2.1"),
        ("6.6.6.6, 192.0.2.1", "192.0.2.1"),
        ("6.6.6.6, 192.0.2.1, 10.1.2.3", "192.0.2.1"),
        ("6.6.6.6,192.0.2.1:4711 , 10.1.2.3,127.0.0.1", "192.0.2.1"),
        ("[2001:db8::1]:80, fd00::7", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("10.0.0.5, 10.0.0.6", "10.0.0.5"),
        // A malformed entry ends the walk: what stands left of it proves nothing.
        ("192.0.2.1, unknown, 10.0.0.6", "10.0.0.6"),
        ("192.0.2.1, unknown", "127.0.0.1"),
        ("192.0.2.1,", "127.0.0.1"),
        ("fe80::1%eth0", "127.0.0.1"),
        ("", "127.0.0.1"),
    ] {
        assert_eq!(client("127.0.0.1", &[("x-forwarded-for", list)]).0, expected, "{list}");
    }
    let lines = [("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "192.0.2.1, 10.0.0.2")];
    assert_eq!(client("::ffff:127.0.0.1", &lines).0, "192.0.2.1", "lines are one list");
}

#[test]
fn the_standard_header_is_read_like_the_others() {
    for (value, expected) in [
        ("for=192.0.2.1", ("192.0.2.1", Scheme::Http, "inner:7300")),
        (
            "for=6.6.6.6;proto=http, For=\"[2001:db8::1]:47\";Proto=HTTPS;host=\"box.example:8443\";by=x",
            ("2001:db8::1", Scheme::Https, "box.example:8443"),
        ),
        (
            "for=192.0.2.1;proto=https;host=box.example, for=10.0.0.1;proto=http;host=inner",
            ("192.0.2.1", Scheme::Https, "box.example"),
        ),
        ("for=_hidden;proto=https", ("127.0.0.1", Scheme::Https, "inner:7300")),
        ("for=192.0.2.1;for=192.0.2.2", ("127.0.0.1", Scheme::Http, "inner:7300")),
        ("for=\"192.0.2.1", ("127.0.0.1", Scheme::Http, "inner:7300")),
        ("nonsense", ("127.0.0.1", Scheme::Http, "inner:7300")),
    ] {
        let (address, scheme, host) = client("127.0.0.1", &[("forwarded", value)]);
        assert_eq!((&*address, scheme, &*host), expected, "{value}");
    }
}

/// nginx passes a `Forwarded` of the client on, and a proxy that sets `Forwarded` the other headers.
#[test]
fn two_families_of_headers_that_differ_count_for_nothing() {
    let differ = [("x-forwarded-for", "192.0.2.1"), ("forwarded", "for=192.0.2.2;proto=https")];
    let direct = ("127.0.0.1".to_owned(), Scheme::Http, "inner:7300".to_owned());
    assert_eq!(client("127.0.0.1", &differ), direct);
    let agree = [("x-forwarded-for", "192.0.2.1"), ("forwarded", "for=192.0.2.1;proto=https")];
    assert_eq!(client("127.0.0.1", &agree).0, "192.0.2.1");
}

#[test]
fn scheme_and_host_come_from_the_proxy_that_the_client_used() {
    let pairs = [
        ("x-forwarded-for", "192.0.2.1, 10.0.0.1"),
        ("x-forwarded-proto", "https, http"),
        ("x-forwarded-host", "box.example"),
    ];
    let (_, scheme, host) = client("127.0.0.1", &pairs);
    assert_eq!((scheme, &*host), (Scheme::Https, "box.example"));
    // The client's own entries are left of the proxies'.
    let pairs = [("x-forwarded-for", "192.0.2.1"), ("x-forwarded-proto", "https, http")];
    assert_eq!(client("127.0.0.1", &pairs).1, Scheme::Http);
    let only = [("x-forwarded-proto", "https"), ("x-forwarded-host", "box.example")];
    assert_eq!(
        client("127.0.0.1", &only),
        ("127.0.0.1".to_owned(), Scheme::Https, "box.example".to_owned())
    );
    for bad in ["a b", "user@box.example", "", "box.example/x"] {
        assert_eq!(client("127.0.0.1", &[("x-forwarded-host", bad)]).2, "inner:7300", "{bad}");
    }
}

/// Otherwise a client could appear as its proxy, or lose the scheme.
#[test]
fn a_client_cannot_hide_what_a_proxy_appends() {
    let long = "10.0.0.1, ".repeat(500);
    let unreadable = [b"6.6.6.6\xff, ".as_slice(), b"\xe4, 6.6.6.6, "];
    for sent in [long.as_bytes(), b"\", \\, "].into_iter().chain(unreadable) {
        for (name, appended) in [
            ("x-forwarded-for", b"192.0.2.1".as_slice()),
            ("forwarded", b"for=192.0.2.1;proto=https"),
            ("forwarded", b"for=\"192.0.2.1:80\";proto=https, for=10.0.0.1"),
        ] {
            let mut all = headers(&[]);
            let name = name.parse::<HeaderName>().unwrap();
            let value = HeaderValue::from_bytes(&[sent, appended].concat()).unwrap();
            all.append(name.clone(), value);
            let client = proxies().client_of([127, 0, 0, 1].into(), Scheme::Http, &mut all);
            let shown = String::from_utf8_lossy(sent);
            assert_eq!(client.address.to_string(), "192.0.2.1", "{name}: {shown}");
            let https = name == header::FORWARDED;
            assert_eq!(client.scheme == Scheme::Https, https, "{name}: {shown}");
        }
    }
    let far = format!("192.0.2.1, {}", "10.0.0.1, ".repeat(500).trim_end_matches(", "));
    assert_eq!(client("127.0.0.1", &[("x-forwarded-for", &far)]).0, "10.0.0.1");
    let lines = [("x-forwarded-for", long.as_str()), ("x-forwarded-for", "192.0.2.1")];
    assert_eq!(client("127.0.0.1", &lines).0, "192.0.2.1");
    let only_junk = "\"".repeat(5000);
    assert_eq!(client("127.0.0.1", &[("forwarded", &only_junk)]).0, "127.0.0.1");
}

#[test]
fn programs_receive_the_client_and_no_proxy() {
    let mut left = headers(&[
        ("x-forwarded-for", "6.6.6.6, 192.0.2.1, 10.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("forwarded", "for=192.0.2.1"),
    ]);
    proxies().client_of("127.0.0.1".parse().unwrap(), Scheme::Http, &mut left);
    assert_eq!(left[forwarded_headers::X_FOR], "6.6.6.6", "the server appends the client");
    assert_eq!(left[forwarded_headers::X_PROTO], "https");
    assert!(!left.contains_key(header::FORWARDED));
}

#[test]
fn a_second_host_header_stays_visible() {
    let mut two = headers(&[("host", "other"), ("x-forwarded-host", "box.example")]);
    proxies().client_of("127.0.0.1".parse().unwrap(), Scheme::Http, &mut two);
    assert_eq!(two.get_all(header::HOST).iter().count(), 2);
}

proptest! {
    #[test]
    fn no_header_ends_the_server(for_ in "[ -~]{0,60}", proto in "[ -~]{0,12}", forwarded in "[ -~]{0,60}") {
        client("127.0.0.1", &[
            ("x-forwarded-for", &for_), ("x-forwarded-proto", &proto), ("forwarded", &forwarded),
        ]);
    }
}
