//! A token service as registries use it: it checks the client's credentials and signs what the
//! client may do.

use crate::{Value, json};
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine};
use rcgen::{CertificateParams, KeyPair};
use ring::rand::SystemRandom;
use ring::signature;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

const ISSUER: &str = "tokens of tests";
/// The name under which the registry is known to the token service.
pub const SERVICE: &str = "registry of tests";

/// A request for a token: its first line, its `authorization` header, and its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// `GET /token?…` or `POST /token`.
    pub line: String,
    /// Empty when the request had none.
    pub authorization: String,
    /// The body; empty for a GET request.
    pub body: String,
}

/// A service on a free port of 127.0.0.1 that ends with the test process.
pub struct TokenService {
    port: u16,
    certificate: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

struct Signer {
    key: signature::EcdsaKeyPair,
    certificate: String,
    /// Clients that may pull: one of these texts is in their header or body. Other clients get a
    /// token that grants nothing.
    known: Vec<String>,
    /// The repository that may be pulled.
    repository: String,
}

impl TokenService {
    /// Starts a service that grants pulls of `repository` to clients that send one of the texts in
    /// `known` in the header `authorization` or in the body.
    ///
    /// # Panics
    /// When no port is available.
    #[must_use]
    pub fn start(repository: &str, known: &[&str]) -> Self {
        let pair = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["tokens".to_owned()]).expect("a name");
        let certificate = params.self_signed(&pair).expect("a certificate");
        let random = SystemRandom::new();
        let how = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let key = signature::EcdsaKeyPair::from_pkcs8(how, &pair.serialize_der(), &random);
        let signer = Arc::new(Signer {
            key: key.expect("a key of P-256"),
            certificate: BASE64_STANDARD.encode(certificate.der()),
            known: known.iter().map(|&one| one.to_owned()).collect(),
            repository: repository.to_owned(),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("a port").port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let signer = Arc::clone(&signer);
                let list = Arc::clone(&list);
                std::thread::spawn(move || signer.answer(stream, &list));
            }
        });
        Self { port, certificate: certificate.pem(), asked }
    }

    /// Lines of a registry's configuration that send its clients to this service; the service's
    /// certificate is written to `folder`.
    ///
    /// # Panics
    /// When a file cannot be written.
    #[must_use]
    pub fn configuration(&self, folder: &Path) -> String {
        let bundle = folder.join("tokens.pem");
        std::fs::write(&bundle, &self.certificate).expect("writes");
        format!(
            "auth:\n  token:\n    realm: http://127.0.0.1:{}/token\n    service: {SERVICE}\n    issuer: {ISSUER}\n    rootcertbundle: {}\n",
            self.port,
            bundle.display()
        )
    }

    /// Host and port of the service.
    #[must_use]
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Takes the requests since the last call.
    ///
    /// # Panics
    /// When a thread of the service has panicked.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().expect("no panic"))
    }
}

impl Signer {
    fn answer(&self, mut stream: TcpStream, list: &Mutex<Vec<Asked>>) {
        let Some(asked) = read(&stream) else { return };
        let known = self
            .known
            .iter()
            .any(|one| asked.authorization.contains(one) || asked.body.contains(one));
        let access = if known {
            json!([{"type": "repository", "name": self.repository, "actions": ["pull"]}])
        } else {
            json!([])
        };
        list.lock().expect("no panic").push(asked);
        let body = json!({"token": self.token(&access)}).to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let _ = stream.write_all((head + &body).as_bytes());
    }

    /// A JSON web token (RFC 7515, ES256) that contains the service's certificate.
    fn token(&self, access: &Value) -> String {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let head = json!({"typ": "JWT", "alg": "ES256", "x5c": [self.certificate]});
        let claims = json!({"iss": ISSUER, "sub": "", "aud": SERVICE, "exp": since + 60,
            "nbf": since - 60, "iat": since, "jti": since.to_string(), "access": access});
        let text = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", text(&head), text(&claims));
        let seal = self.key.sign(&SystemRandom::new(), signed.as_bytes()).expect("a signature");
        format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(seal.as_ref()))
    }
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    lines.read_line(&mut line).ok()?;
    let mut authorization = String::new();
    let mut length = 0;
    loop {
        let mut header = String::new();
        lines.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "authorization" => authorization = value.to_owned(),
            "content-length" => length = value.parse().ok()?,
            _ => {}
        }
    }
    let mut body = String::new();
    lines.take(length).read_to_string(&mut body).ok()?;
    let line = line.rsplit_once(' ').map_or("", |(line, _)| line).to_owned();
    Some(Asked { line, authorization, body })
}
