//! Servers of the test internet: a resolver, web servers with and without TLS, and others.

use crate::world::{RESOLVER, SOON, World};
use hickory_proto::op::{Message, MessageType, Metadata, ResponseCode};
use hickory_proto::rr::{RData, Record};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};

/// The request heads that a server received, or the queries of a resolver.
pub(crate) type ReceivedHeads = Arc<Mutex<Vec<String>>>;

/// The records of a name, by how many queries for it came before.
pub(crate) type NameAnswers = Box<dyn Fn(usize) -> Vec<RData> + Send>;

pub(crate) fn a(address: Ipv4Addr) -> RData {
    RData::A(hickory_proto::rr::rdata::A(address))
}

/// The records of a name that always has this address.
pub(crate) fn always(address: Ipv4Addr) -> NameAnswers {
    Box::new(move |_| vec![a(address)])
}

/// Starts a resolver that knows these names; returns the queries that it receives.
pub(crate) fn resolver(world: &World, names: Vec<(&str, NameAnswers)>) -> ReceivedHeads {
    let names: HashMap<String, NameAnswers> =
        names.into_iter().map(|(name, answer)| (format!("{name}."), answer)).collect();
    let socket = world.on_internet(|| UdpSocket::bind((RESOLVER, 53)).expect("a free port"));
    let heard = ReceivedHeads::default();
    let asked = heard.clone();
    std::thread::spawn(move || {
        let mut packet = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            let Ok(question) = Message::from_vec(&packet[..length]) else { continue };
            let query = &question.queries[0];
            let name = query.name().to_lowercase().to_ascii();
            let line = format!("{} {name}", query.query_type());
            let before = {
                let mut asked = asked.lock().expect("no thread panicked with the lock");
                asked.push(line.clone());
                asked.iter().filter(|it| **it == line).count() - 1
            };
            let mut answer = Message::response(question.metadata.id, question.metadata.op_code);
            answer.metadata = Metadata::response_from_request(&question.metadata);
            answer.metadata.message_type = MessageType::Response;
            answer.queries.clone_from(&question.queries);
            match names.get(&name) {
                Some(of) => {
                    for data in of(before) {
                        answer.answers.push(Record::from_rdata(query.name().clone(), 1, data));
                    }
                }
                None => answer.metadata.response_code = ResponseCode::NXDomain,
            }
            let _ = socket.send_to(&answer.to_vec().expect("encodes"), from);
        }
    });
    heard
}

fn listen(
    world: &World,
    at: Ipv4Addr,
    port: u16,
    serve: impl Fn(TcpStream) + Send + Sync + 'static,
) {
    let listener = world.on_internet(|| TcpListener::bind((at, port)).expect("a free port"));
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || {
                let _ = stream.set_read_timeout(Some(SOON));
                serve(stream);
            });
        }
    });
}

/// Starts a web server that answers each request with its own address and the request's `Host`;
/// returns the heads that it receives.
pub(crate) fn web(world: &World, at: Ipv4Addr, port: u16) -> ReceivedHeads {
    let heard = ReceivedHeads::default();
    let heads = heard.clone();
    listen(world, at, port, move |stream| {
        let Ok(mut copy) = stream.try_clone() else { return };
        let mut stream = BufReader::new(stream);
        // After an upgrade the server echoes.
        if requests(&mut stream, at, &heads).is_some() {
            let _ = std::io::copy(&mut stream, &mut copy);
        }
    });
    heard
}

/// Answers requests until the connection ends (`None`) or a request upgrades the protocol.
fn requests<S: Read + Write>(
    stream: &mut BufReader<S>,
    at: Ipv4Addr,
    heads: &ReceivedHeads,
) -> Option<()> {
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let value = |name: &str| {
            let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(name));
            line.map(|line| line[name.len()..].trim().to_owned())
        };
        heads.lock().expect("no thread panicked with the lock").push(head.clone());
        if value("upgrade:").is_some() {
            let answer = "HTTP/1.1 101 Yes\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
            stream.get_mut().write_all(answer.as_bytes()).ok()?;
            return Some(());
        }
        if value("transfer-encoding:").is_some() {
            let mut body = String::new();
            while !body.ends_with("0\r\n\r\n") {
                stream.read_line(&mut body).ok()?;
            }
        }
        let length = value("content-length:").and_then(|it| it.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        let host = value("host:").unwrap_or_default();
        let body = format!("{at} {host} {length}\n");
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.get_mut().write_all(answer.as_bytes()).ok()?;
        stream.get_mut().flush().ok()?;
    }
}

/// The bytes that a server received.
pub(crate) type Captured = Arc<Mutex<Vec<u8>>>;

/// Starts a web server that records each request, with its body, before it answers.
pub(crate) fn capture(world: &World, at: Ipv4Addr, port: u16) -> Captured {
    let heard = Captured::default();
    let captured = heard.clone();
    listen(world, at, port, move |mut stream| {
        let mut request = Vec::new();
        let mut buffer = [0; 4096];
        while !is_whole(&request) {
            match stream.read(&mut buffer) {
                Ok(length @ 1..) => request.extend_from_slice(&buffer[..length]),
                _ => return,
            }
        }
        captured.lock().expect("no thread panicked with the lock").extend_from_slice(&request);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let _ = stream.read(&mut buffer);
    });
    heard
}

/// Whether these bytes are a request with all of its body.
fn is_whole(request: &[u8]) -> bool {
    let end = request.windows(4).position(|it| it == b"\r\n\r\n");
    let Some(end) = end.map(|it| it + 4) else { return false };
    let head = String::from_utf8_lossy(&request[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    match length.and_then(|it| it.trim().parse::<usize>().ok()) {
        Some(length) => request.len() >= end + length,
        None => !head.contains("\r\ntransfer-encoding:") || request.ends_with(b"0\r\n\r\n"),
    }
}

/// Starts a server that accepts connections and reads nothing from them; returns the connections.
pub(crate) fn never_reading(world: &World, at: Ipv4Addr, port: u16) -> Arc<Mutex<Vec<TcpStream>>> {
    let held = Arc::new(Mutex::new(Vec::new()));
    let listener = world.on_internet(|| TcpListener::bind((at, port)).expect("a free port"));
    let taken = held.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            taken.lock().expect("no thread panicked with the lock").push(stream);
        }
    });
    held
}

/// A self-signed certificate, with a server that presents it and a client that trusts it.
pub(crate) struct Certificates {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    /// The certificate as PEM.
    pub(crate) pem: String,
    pub(crate) certificate: CertificateDer<'static>,
}

/// Chosen explicitly, because another crate of the build may enable a second provider.
fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The configuration of a client that trusts only this certificate.
pub(crate) fn trusting(certificate: CertificateDer<'static>) -> Arc<ClientConfig> {
    trusting_all([certificate])
}

/// The configuration of a client that trusts these certificates.
pub(crate) fn trusting_all(
    certificates: impl IntoIterator<Item = CertificateDer<'static>>,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).expect("a root");
    }
    let client = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(client)
}

impl Certificates {
    pub(crate) fn new(names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let server = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a server");
        let client = trusting(made.cert.der().clone());
        let certificate = made.cert.der().clone();
        Self { server: Arc::new(server), client, pem: made.cert.pem(), certificate }
    }

    /// The configuration of a client that trusts only this certificate.
    pub(crate) fn trust(&self) -> Arc<ClientConfig> {
        self.client.clone()
    }

    /// Starts a web server like [`web`] that speaks TLS.
    pub(crate) fn web(&self, world: &World, at: Ipv4Addr, port: u16) -> ReceivedHeads {
        let config = self.server.clone();
        let heard = ReceivedHeads::default();
        let heads = heard.clone();
        listen(world, at, port, move |stream| {
            let Ok(tls) = ServerConnection::new(config.clone()) else { return };
            let mut stream = BufReader::new(rustls::StreamOwned::new(tls, stream));
            let _ = requests(&mut stream, at, &heads);
        });
        heard
    }

    /// Starts a TLS server that records what it receives, also as early data, and answers each
    /// piece; returns the recorded bytes.
    pub(crate) fn capture(
        &self,
        world: &World,
        at: Ipv4Addr,
        port: u16,
        alpn: &[&[u8]],
    ) -> Captured {
        let mut config = (*self.server).clone();
        config.alpn_protocols = alpn.iter().map(|it| it.to_vec()).collect();
        config.max_early_data_size = 16 * 1024;
        let config = Arc::new(config);
        let heard = Captured::default();
        let captured = heard.clone();
        listen(world, at, port, move |stream| {
            let Ok(tls) = ServerConnection::new(config.clone()) else { return };
            let mut stream = rustls::StreamOwned::new(tls, stream);
            capture_all(&mut stream, &captured);
        });
        heard
    }

    /// Starts a TLS server that sends its address and the SNI of the client, and then echoes.
    pub(crate) fn serve(&self, world: &World, at: Ipv4Addr, port: u16) {
        let config = self.server.clone();
        listen(world, at, port, move |stream| {
            let Ok(tls) = ServerConnection::new(config.clone()) else { return };
            let mut tls = rustls::StreamOwned::new(tls, stream);
            let _ = tls.flush();
            let name = tls.conn.server_name().unwrap_or("nobody").to_owned();
            let _ = tls.write_all(format!("{at} {name}\n").as_bytes());
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = tls.read(&mut buffer) {
                if tls.write_all(&buffer[..length]).is_err() {
                    return;
                }
            }
        });
    }

    /// A client with this SNI.
    pub(crate) fn client(&self, name: &str) -> ClientConnection {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        ClientConnection::new(self.client.clone(), name).expect("a client")
    }

    /// The line that a server sends to a client with the SNI `name`, or the error.
    pub(crate) fn greeting(&self, stream: TcpStream, name: &str) -> Result<String, String> {
        let mut stream = rustls::StreamOwned::new(self.client(name), stream);
        line(&mut stream)
    }

    /// The answer to a request of a client that trusts the certificate, or the error.
    pub(crate) fn request(&self, world: &World, at: Ipv4Addr, name: &str, request: &str) -> String {
        let mut stream = rustls::StreamOwned::new(self.client(name), world.connect(at, 443));
        if let Err(error) = stream.write_all(request.as_bytes()) {
            return error.to_string();
        }
        let mut answer = vec![0; 4096];
        let length = stream.read(&mut answer).unwrap_or(0);
        String::from_utf8_lossy(&answer[..length]).into_owned()
    }
}

/// Records what a client sends, as early data or later, until it ends. Once the handshake is
/// complete it answers each piece, because the client receives its session tickets with the
/// answers.
fn capture_all(stream: &mut rustls::StreamOwned<ServerConnection, TcpStream>, captured: &Captured) {
    let mut buffer = [0; 4096];
    while stream.conn.is_handshaking() {
        if stream.conn.complete_io(&mut stream.sock).is_err() {
            return;
        }
        if let Some(mut early) = stream.conn.early_data() {
            while let Ok(length @ 1..) = early.read(&mut buffer) {
                capture_piece(captured, b"early:", &buffer[..length]);
            }
        }
    }
    let _ = stream.write_all(b"hello\n");
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        capture_piece(captured, b"", &buffer[..length]);
        let _ = stream.write_all(b"received\n");
    }
}

fn capture_piece(captured: &Captured, mark: &[u8], piece: &[u8]) {
    let mut captured = captured.lock().expect("no thread panicked with the lock");
    captured.extend_from_slice(mark);
    captured.extend_from_slice(piece);
}

/// Reads one line, without its end; the error says why there is none.
pub(crate) fn line(stream: &mut impl Read) -> Result<String, String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while byte != *b"\n" {
        match stream.read(&mut byte) {
            Ok(1) => line.push(byte[0]),
            Ok(_) => return Err("ended".to_owned()),
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// Starts a server that sends a banner and then echoes.
pub(crate) fn banner(world: &World, at: Ipv4Addr, port: u16) {
    listen(world, at, port, move |mut stream| {
        let _ = stream.write_all(format!("220 {at}\n").as_bytes());
        let Ok(mut copy) = stream.try_clone() else { return };
        let _ = std::io::copy(&mut stream, &mut copy);
    });
}

/// Starts a server that sends this many bytes on each connection.
pub(crate) fn source(world: &World, at: Ipv4Addr, port: u16, bytes: usize) {
    listen(world, at, port, move |mut stream| {
        let block = vec![7; 1 << 20];
        let mut left = bytes;
        while left > 0 {
            let length = left.min(block.len());
            if stream.write_all(&block[..length]).is_err() {
                return;
            }
            left -= length;
        }
    });
}
