//! Real registries: some require authentication, some have a token service, and some are mirrors.

use isolet_kit::docker::DockerRegistry;
use isolet_kit::image::{Image, Layer, Registry, busybox};
use isolet_kit::net::{World, ip};
use isolet_kit::tokens::{SERVICE, TokenService};
use isolet_kit::{Http, Options, Server, Value, json};
use rcgen::{CertificateParams, KeyPair, SanType};

/// The user `ann` with the password `secret`, as a line of `htpasswd`.
const LINE: &str = "ann:$2b$05$3lPDdBTE9my4vY98xR1S2.Mjn7yNmLo3ZbGRe8SvEB.LraQCX4zV.\n";
/// The same credentials, as a client sends them.
const BASIC: &str = "YW5uOnNlY3JldA==";

fn image(word: &str) -> Image {
    let second = Layer::new().file("/word", word.as_bytes()).bytes();
    Image::new(&[busybox().bytes(), second], &json!({}))
}

/// A server that uses these registries, with this file of credentials.
fn asking(hosts: &[&str], file: &std::path::Path, more: &str) -> Server {
    let text = format!("[images]\nregistries = {hosts:?}\ncredentials = {file:?}\n{more}");
    Options::new().config(&text).start()
}

fn pull(http: &Http, name: &str) -> isolet_kit::Reply {
    http.post("/v1/images/pull", &json!({"image": name}))
}

fn credentials(file: &std::path::Path, of: &Value) {
    std::fs::write(file, json!({"auths": of}).to_string()).expect("writes");
}

/// Promises: A9.
#[test]
fn a_registry_that_requires_authentication_gets_dockers_credentials() {
    let mut registry = DockerRegistry::start();
    let name = registry.push("private/box", &image("kept"));
    registry.ask_for_passwords(LINE);
    let host = registry.host();
    let file = registry.folder().join("config.json");
    let server = asking(&[&host], &file, "");
    let http = server.http();
    assert_eq!(pull(&http, &name).expect(403).error(), "image_denied");
    credentials(&file, &json!({host: {"auth": BASIC}}));
    assert_eq!(pull(&http, &name).expect(200).json()["digest"], image("kept").digest);
    assert!(!server.log().contains(BASIC) && !server.log().contains("secret"), "{}", server.log());
}

/// Debian's registry verifies each token: it rejects a token for another repository and one that
/// grants nothing.
/// Promises: A9.
#[test]
fn a_token_is_fetched_from_the_service_that_the_registry_names() {
    let mut registry = DockerRegistry::start();
    let name = registry.push("private/box", &image("kept"));
    let other = registry.push("private/other", &image("other"));
    let tokens = TokenService::start("private/box", &[BASIC, "refresh_token=of-ann"]);
    registry.restart_at(registry.address(), &tokens.configuration(registry.folder()), "");
    let host = registry.host();
    let file = registry.folder().join("config.json");
    let server = asking(&[&host, &tokens.host()], &file, "");
    let http = server.http();

    assert_eq!(pull(&http, &name).expect(403).error(), "image_denied");
    let asked = tokens.asked();
    assert!(asked.iter().all(|one| one.authorization.is_empty()), "{asked:?}");
    let service = SERVICE.replace(' ', "+");
    let scope = "scope=repository%3Aprivate%2Fbox%3Apull";
    let wanted = format!("GET /token?service={service}&{scope}");
    assert_eq!(asked.first().expect("it was asked").line, wanted);

    credentials(&file, &json!({&host: {"auth": BASIC}}));
    assert_eq!(pull(&http, &name).expect(200).json()["digest"], image("kept").digest);
    let asked = tokens.asked();
    assert_eq!(asked.len(), 1, "one token serves a whole pull: {asked:?}");
    assert_eq!(asked[0].authorization, format!("Basic {BASIC}"));
    assert_eq!(pull(&http, &other).expect(403).error(), "image_denied");
    drop(tokens.asked());

    http.delete(&format!("/v1/images/{name}")).expect(204);
    credentials(&file, &json!({&host: {"identitytoken": "of-ann"}}));
    assert_eq!(pull(&http, &name).expect(200).json()["digest"], image("kept").digest);
    let asked = tokens.asked();
    assert_eq!((asked[0].line.as_str(), asked[0].authorization.as_str()), ("POST /token", ""));
    assert!(asked[0].body.contains("grant_type=refresh_token"), "{asked:?}");
    assert!(asked[0].body.contains("scope=repository%3Aprivate%2Fbox%3Apull"), "{asked:?}");
    for secret in [BASIC, "of-ann", "eyJ"] {
        assert!(!server.log().contains(secret), "{secret}: {}", server.log());
    }
}

/// A registry on another machine is contacted over TLS only, and its certificate is verified.
/// Promises: A10.
#[test]
fn a_remote_registry_is_contacted_over_verified_tls() {
    let _world = World::new();
    ip("addr add 192.0.2.9/32 dev lo");
    let mut registry = DockerRegistry::start();
    registry.push("box", &image("kept"));
    let elsewhere = "192.0.2.9:5000".parse().expect("an address");
    let file = registry.folder().join("config.json");
    let pem = registry.folder().join("pem");
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.subject_alt_names.push(SanType::IpAddress([192, 0, 2, 9].into()));
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    std::fs::write(&pem, &certificate).expect("writes");
    std::fs::write(registry.folder().join("key"), key.serialize_pem()).expect("writes");
    let at = registry.folder().display();
    let tls = format!("  tls:\n    certificate: {at}/pem\n    key: {at}/key\n");

    let name = "192.0.2.9:5000/box:1";
    registry.restart_at(elsewhere, "", "");
    let trusting = || {
        let config =
            format!("[images]\nregistries = [\"192.0.2.9:5000\"]\ncredentials = {file:?}\n");
        Options::new().config(&config)
    };
    let knowing = trusting().env("SSL_CERT_FILE", &pem.to_string_lossy()).start();
    let plain = pull(&knowing.http(), name).expect(502);
    assert_eq!(plain.error(), "registry_failed", "it speaks plain HTTP");
    registry.restart_at(elsewhere, "", &tls);
    let pulled = pull(&knowing.http(), name).expect(200);
    assert_eq!(pulled.json()["digest"], image("kept").digest);

    let strange = trusting().start();
    let refused = pull(&strange.http(), name).expect(502);
    assert!(refused.text().contains("certificate"), "{}", refused.text());
}

/// Of three mirrors, one does not run, one lacks the image, and one has it; none gets what is meant
/// for the registry.
/// Promises: A9.
#[test]
fn mirrors_are_tried_first_without_the_registrys_credentials() {
    let mut mirror = DockerRegistry::start();
    let registry = Registry::start();
    mirror.push("box", &image("mirrored"));
    let empty = Registry::start();
    let name = registry.has("box", image("own"));
    let host = registry.host();
    let file = mirror.folder().join("config.json");
    credentials(&file, &json!({&host: {"auth": BASIC}}));
    let gone = "127.0.0.1:1".to_owned();
    let near = mirror.host();
    let more = format!("[images.mirrors]\n\"{host}\" = {:?}\n", [&gone, &empty.host(), &near]);
    let server = asking(&[&host, &gone, &empty.host(), &near], &file, &more);
    let http = server.http();
    let pulled = pull(&http, &name).expect(200).json();
    assert_eq!(pulled["digest"], image("mirrored").digest);
    assert_eq!(registry.asked(), [""; 0], "a mirror had all of it");
    assert!(!empty.asked().is_empty(), "it was tried before");

    http.delete(&format!("/v1/images/{name}")).expect(204);
    mirror.ask_for_passwords(LINE);
    let pulled = pull(&http, &name).expect(200).json();
    assert_eq!(
        pulled["digest"],
        image("own").digest,
        "a mirror does not get the registry's password"
    );
}

/// Promises: A11.
#[test]
fn from_an_index_the_requested_platform_or_the_hosts_own_is_used() {
    let registry = DockerRegistry::start();
    let own = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let ours = image("ours").on(own);
    let theirs = image("theirs").on("s390x");
    let name = registry.push_index("box", &[("s390x", &theirs), (own, &ours)]);
    let file = registry.folder().join("config.json");
    let server = asking(&[&registry.host()], &file, "");
    let http = server.http();
    let spec = |platform: &str| {
        http.post("/v1/images/pull", &json!({"image": name, "platform": platform}))
    };
    assert_eq!(pull(&http, &name).expect(200).json()["digest"], ours.digest);
    let sandbox = server.sandbox_with(&json!({"image": name}));
    assert_eq!(sandbox.says("cat /word"), "ours");
    assert_eq!(spec("linux/s390x").expect(200).json()["digest"], theirs.digest);
    let missing = spec("linux/riscv64");
    assert_eq!(missing.status, 422, "{}", missing.text());
    assert!(missing.text().contains("linux/s390x"), "{}", missing.text());
}
