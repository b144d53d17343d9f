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

/// Certificates of an authority that clients of the tests know.
pub(crate) struct Certificates {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    /// As PEM.
    pub(crate) pem: String,
}

/// Named: another crate of a build may bring another one.
fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A client that trusts this certificate alone.
pub(crate) fn trusting(certificate: CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("a root");
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
        Self { server: Arc::new(server), client, pem: made.cert.pem() }
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

/// One line.
pub(crate) fn line(stream: &mut impl Read) -> Result<String, String> {
    let (mut line, mut byte) = (Vec::new(), [0]);
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
