//! A question to those who know names: by UDP, each from a port of its own, and by TCP when the
//! answer is long.

use hickory_proto::op::{Edns, Message, MessageType, Query};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// Largest DNS message by UDP, in bytes, in either direction: it needs no fragments on any path.
pub(crate) const UDP_BYTES_MAX: usize = 1232;
/// How long one resolver has.
const EACH: Duration = Duration::from_millis(1500);
/// How often all are asked.
const ROUNDS: usize = 2;
/// The longest answer by TCP that is read.
const TCP_BYTES_MAX: usize = 16 * 1024;

/// Asks one after the other; `None`: nobody answers.
pub(crate) async fn ask(resolvers: &[SocketAddr], question: &Query) -> Option<Message> {
    for _ in 0..ROUNDS {
        for resolver in resolvers {
            if let Ok(Some(answer)) = timeout(EACH, one(*resolver, question)).await {
                return Some(answer);
            }
        }
    }
    None
}

async fn one(resolver: SocketAddr, question: &Query) -> Option<Message> {
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.queries.push(question.clone());
    let mut edns = Edns::new();
    edns.set_max_payload(UDP_BYTES_MAX as u16);
    message.edns = Some(edns);
    let bytes = message.to_vec().ok()?;
    let answer = by_udp(resolver, &message, &bytes).await?;
    if answer.metadata.truncation { by_tcp(resolver, &message, &bytes).await } else { Some(answer) }
}

/// Whether it answers what was asked, and not what somebody else would like to answer.
fn answers(answer: &Message, asked: &Message) -> bool {
    let same = |one: &Query, other: &Query| {
        one.name().eq_ignore_root(other.name())
            && one.query_type() == other.query_type()
            && one.query_class() == other.query_class()
    };
    answer.metadata.id == asked.metadata.id
        && answer.metadata.message_type == MessageType::Response
        && matches!((&answer.queries[..], &asked.queries[..]), ([one], [other]) if same(one, other))
}

async fn by_udp(resolver: SocketAddr, asked: &Message, bytes: &[u8]) -> Option<Message> {
    let any: SocketAddr = match resolver {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await.ok()?;
    socket.connect(resolver).await.ok()?;
    socket.send(bytes).await.ok()?;
    let mut packet = [0; UDP_BYTES_MAX];
    loop {
        let length = socket.recv(&mut packet).await.ok()?;
        let answer = Message::from_vec(&packet[..length]);
        if let Some(answer) = answer.ok().filter(|answer| answers(answer, asked)) {
            return Some(answer);
        }
    }
}

async fn by_tcp(resolver: SocketAddr, asked: &Message, bytes: &[u8]) -> Option<Message> {
    let mut stream = TcpStream::connect(resolver).await.ok()?;
    let mut framed = u16::try_from(bytes.len()).ok()?.to_be_bytes().to_vec();
    framed.extend_from_slice(bytes);
    stream.write_all(&framed).await.ok()?;
    let length = usize::from(stream.read_u16().await.ok()?);
    let mut packet = vec![0; Some(length).filter(|length| *length <= TCP_BYTES_MAX)?];
    stream.read_exact(&mut packet).await.ok()?;
    Message::from_vec(&packet).ok().filter(|answer| answers(answer, asked))
}
