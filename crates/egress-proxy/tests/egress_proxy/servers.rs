//! The internet: a resolver, web servers with and without TLS, and others.

use crate::world::{RESOLVER, SOON, World};
use hickory_proto::op::{Message, MessageType, Metadata, ResponseCode};
use hickory_proto::rr::{RData, Record};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};

/// What a server was sent.
pub(crate) type Heard = Arc<Mutex<Vec<String>>>;

/// Answers to a name, by how often it was asked before.
pub(crate) type Answer = Box<dyn Fn(usize) -> Vec<RData> + Send>;

pub(crate) fn a(address: Ipv4Addr) -> RData {
    RData::A(hickory_proto::rr::rdata::A(address))
}

/// A name that always has this address.
pub(crate) fn always(address: Ipv4Addr) -> Answer {
    Box::new(move |_| vec![a(address)])
}

/// A resolver with these names; what it was asked.
pub(crate) fn resolver(world: &World, names: Vec<(&str, Answer)>) -> Heard {
    let names: HashMap<String, Answer> =
        names.into_iter().map(|(name, answer)| (format!("{name}."), answer)).collect();
    let socket = world.outside(|| UdpSocket::bind((RESOLVER, 53)).expect("a free port"));
    let heard = Heard::default();
    let asked = heard.clone();
    std::thread::spawn(move || {
        let mut packet = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            let Ok(question) = Message::from_vec(&packet[..length]) else { continue };
            let query = &question.queries[0];
            let name = query.name().to_lowercase().to_ascii();
            let line = format!("{} {name}", query.query_type());
            let before = {
                let mut asked = asked.lock().expect("nobody panics with it");
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
    let listener = world.outside(|| TcpListener::bind((at, port)).expect("a free port"));
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

/// A web server: answers each request with its own address and the request's `Host`; the heads it
/// was sent.
pub(crate) fn web(world: &World, at: Ipv4Addr, port: u16) -> Heard {
    let heard = Heard::default();
    let heads = heard.clone();
    listen(world, at, port, move |stream| {
        let Ok(mut copy) = stream.try_clone() else { return };
        let mut stream = BufReader::new(stream);
        // Somebody who asked for another protocol is echoed.
        if requests(&mut stream, at, &heads).is_some() {
            let _ = std::io::copy(&mut stream, &mut copy);
        }
    });
    heard
}

/// Answers requests; comes back when there are no more, with something when the last one asked
/// for another protocol.
fn requests<S: Read + Write>(stream: &mut BufReader<S>, at: Ipv4Addr, heads: &Heard) -> Option<()> {
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
        heads.lock().expect("nobody panics with it").push(head.clone());
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

/// Bytes that a server was sent.
pub(crate) type Captured = Arc<Mutex<Vec<u8>>>;

/// A web server that keeps each request whole, as it came, before it answers.
pub(crate) fn capture(world: &World, at: Ipv4Addr, port: u16) -> Captured {
    let heard = Captured::default();
    let kept = heard.clone();
    listen(world, at, port, move |mut stream| {
        let mut request = Vec::new();
        let mut buffer = [0; 4096];
        while !is_whole(&request) {
            match stream.read(&mut buffer) {
                Ok(length @ 1..) => request.extend_from_slice(&buffer[..length]),
                _ => return,
            }
        }
        kept.lock().expect("nobody panics with it").extend_from_slice(&request);
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

/// A server that takes connections and reads nothing from them; how many it has.
pub(crate) fn deaf(world: &World, at: Ipv4Addr, port: u16) -> Arc<Mutex<Vec<TcpStream>>> {
    let held = Arc::new(Mutex::new(Vec::new()));
    let listener = world.outside(|| TcpListener::bind((at, port)).expect("a free port"));
    let taken = held.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            taken.lock().expect("nobody panics with it").push(stream);
        }
    });
    held
}

/// Certificates of an authority that clients of the tests know.
pub(crate) struct Certificates {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    /// As PEM.
    pub(crate) pem: String,
    pub(crate) certificate: CertificateDer<'static>,
}

/// Named: another crate of a build may bring another one.
fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A client that trusts this certificate alone.
pub(crate) fn trusting(certificate: CertificateDer<'static>) -> Arc<ClientConfig> {
    trusting_all([certificate])
}

/// A client that trusts these.
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

    /// A client that trusts these alone.
    pub(crate) fn trust(&self) -> Arc<ClientConfig> {
        self.client.clone()
    }

    /// A web server, as [`web`], within TLS.
    pub(crate) fn web(&self, world: &World, at: Ipv4Addr, port: u16) -> Heard {
        let config = self.server.clone();
        let heard = Heard::default();
        let heads = heard.clone();
        listen(world, at, port, move |stream| {
            let Ok(tls) = ServerConnection::new(config.clone()) else { return };
            let mut stream = BufReader::new(rustls::StreamOwned::new(tls, stream));
            let _ = requests(&mut stream, at, &heads);
        });
        heard
    }

    /// A server that keeps what it is sent within TLS, also before the handshake is done, and
    /// answers each piece; with the name it was asked by in front.
    pub(crate) fn keep(&self, world: &World, at: Ipv4Addr, port: u16, alpn: &[&[u8]]) -> Captured {
        let mut config = (*self.server).clone();
        config.alpn_protocols = alpn.iter().map(|it| it.to_vec()).collect();
        config.max_early_data_size = 16 * 1024;
        let config = Arc::new(config);
        let heard = Captured::default();
        let kept = heard.clone();
        listen(world, at, port, move |stream| {
            let Ok(tls) = ServerConnection::new(config.clone()) else { return };
            let mut stream = rustls::StreamOwned::new(tls, stream);
            keep_all(&mut stream, &kept);
        });
        heard
    }

    /// A server that says its address and the name it was asked by, then echoes.
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

    /// A client that asks for this name.
    pub(crate) fn client(&self, name: &str) -> ClientConnection {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        ClientConnection::new(self.client.clone(), name).expect("a client")
    }

    /// The line that a server says to somebody who asks for `name`, or what went wrong.
    pub(crate) fn greeting(&self, stream: TcpStream, name: &str) -> Result<String, String> {
        let mut stream = rustls::StreamOwned::new(self.client(name), stream);
        line(&mut stream)
    }
}

impl Certificates {
    /// What is answered to a request by somebody who trusts these.
    pub(crate) fn greeted(&self, world: &World, at: Ipv4Addr, name: &str, request: &str) -> String {
        let mut stream = rustls::StreamOwned::new(self.client(name), world.connect(at, 443));
        if let Err(error) = stream.write_all(request.as_bytes()) {
            return error.to_string();
        }
        let mut answer = vec![0; 4096];
        let length = stream.read(&mut answer).unwrap_or(0);
        String::from_utf8_lossy(&answer[..length]).into_owned()
    }
}

/// Keeps what comes, early or not, until it ends. Each piece is answered once the handshake is
/// done, which is what a ticket comes with.
fn keep_all(stream: &mut rustls::StreamOwned<ServerConnection, TcpStream>, kept: &Captured) {
    let mut buffer = [0; 4096];
    while stream.conn.is_handshaking() {
        if stream.conn.complete_io(&mut stream.sock).is_err() {
            return;
        }
        if let Some(mut early) = stream.conn.early_data() {
            while let Ok(length @ 1..) = early.read(&mut buffer) {
                keep_piece(kept, b"early:", &buffer[..length]);
            }
        }
    }
    let _ = stream.write_all(b"hello\n");
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        keep_piece(kept, b"", &buffer[..length]);
        let _ = stream.write_all(b"kept\n");
    }
}

fn keep_piece(kept: &Captured, mark: &[u8], piece: &[u8]) {
    let mut kept = kept.lock().expect("nobody panics with it");
    kept.extend_from_slice(mark);
    kept.extend_from_slice(piece);
}

/// One line.
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

/// A server that speaks first, then echoes.
pub(crate) fn banner(world: &World, at: Ipv4Addr, port: u16) {
    listen(world, at, port, move |mut stream| {
        let _ = stream.write_all(format!("220 {at}\n").as_bytes());
        let Ok(mut copy) = stream.try_clone() else { return };
        let _ = std::io::copy(&mut stream, &mut copy);
    });
}

/// A server that sends so many bytes to whoever comes.
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
