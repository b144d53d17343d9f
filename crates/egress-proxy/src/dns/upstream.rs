//! Queries the resolvers: by UDP, each query from a port of its own, and by TCP when the response
//! was truncated.

use hickory_proto::op::{Edns, Message, MessageType, Query};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// Largest DNS message by UDP, in bytes, in either direction: it needs no fragments on any path.
pub(crate) const UDP_BYTES_MAX: usize = 1232;
/// How long one resolver may take.
const RESOLVER_TIMEOUT: Duration = Duration::from_millis(1500);
/// How many times every resolver is tried.
const ROUNDS: usize = 2;
/// The longest response by TCP, in bytes.
const TCP_BYTES_MAX: usize = 16 * 1024;

/// Queries one resolver after the other; `None`: none answers.
pub(crate) async fn query(resolvers: &[SocketAddr], question: &Query) -> Option<Message> {
    for _ in 0..ROUNDS {
        for resolver in resolvers {
            if let Ok(Some(answer)) =
                timeout(RESOLVER_TIMEOUT, query_one(*resolver, question)).await
            {
                return Some(answer);
            }
        }
    }
    None
}

async fn query_one(resolver: SocketAddr, question: &Query) -> Option<Message> {
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.queries.push(question.clone());
    let mut edns = Edns::new();
    edns.set_max_payload(UDP_BYTES_MAX as u16);
    message.edns = Some(edns);
    let bytes = message.to_vec().ok()?;
    let response = by_udp(resolver, &message, &bytes).await?;
    if response.metadata.truncation {
        by_tcp(resolver, &message, &bytes).await
    } else {
        Some(response)
    }
}

/// Whether a response belongs to this request; a spoofed one does not.
fn is_response_to(response: &Message, request: &Message) -> bool {
    let same = |one: &Query, other: &Query| {
        one.name().eq_ignore_root(other.name())
            && one.query_type() == other.query_type()
            && one.query_class() == other.query_class()
    };
    response.metadata.id == request.metadata.id
        && response.metadata.message_type == MessageType::Response
        && matches!((&response.queries[..], &request.queries[..]), ([one], [other]) if same(one, other))
}

async fn by_udp(resolver: SocketAddr, request: &Message, bytes: &[u8]) -> Option<Message> {
    let unspecified: SocketAddr = match resolver {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(unspecified).await.ok()?;
    socket.connect(resolver).await.ok()?;
    socket.send(bytes).await.ok()?;
    let mut packet = [0; UDP_BYTES_MAX];
    loop {
        let length = socket.recv(&mut packet).await.ok()?;
        let response = Message::from_vec(&packet[..length]);
        if let Some(response) = response.ok().filter(|it| is_response_to(it, request)) {
            return Some(response);
        }
    }
}

async fn by_tcp(resolver: SocketAddr, request: &Message, bytes: &[u8]) -> Option<Message> {
    let mut stream = TcpStream::connect(resolver).await.ok()?;
    let mut framed = u16::try_from(bytes.len()).ok()?.to_be_bytes().to_vec();
    framed.extend_from_slice(bytes);
    stream.write_all(&framed).await.ok()?;
    let length = usize::from(stream.read_u16().await.ok()?);
    let mut packet = vec![0; Some(length).filter(|length| *length <= TCP_BYTES_MAX)?];
    stream.read_exact(&mut packet).await.ok()?;
    Message::from_vec(&packet).ok().filter(|it| is_response_to(it, request))
}
