//! Names: what is answered to one question.
//!
//! Only addresses of IPv4 are answered, under the name that was asked for: what aliases lie
//! between is not shown, and an alias allows nothing. Addresses that the guard says are closed are
//! left out. What rules refuse does not exist (`NXDOMAIN`, without a time to remember it, since a
//! rule may come); whoever understands RFC 8914 is told why.

use super::resolve::{self, Unresolved};
use super::upstream::UDP_BYTES_MAX;
use crate::policy::said;
use crate::state::sandbox::Link;
use crate::state::table::Links;
use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};
use isolet_wire::network::{To, Verdict, host};

/// By UDP to somebody who says nothing of a size.
const UDP_BYTES_PLAIN: usize = 512;
/// Records of an answer that are handed on.
const RECORDS_MAX: usize = 32;
/// An extended error: blocked by whoever runs the server.
const BLOCKED: u16 = 15;
const EXTENDED_ERROR: u16 = 15;

/// Answers one question, as bytes; `None`: it is none, and gets no answer. `bytes_max` is what the
/// way back carries; a longer answer says that it was cut.
pub(crate) async fn answer(
    links: &Links,
    link: &Link,
    question: &[u8],
    udp: bool,
) -> Option<Vec<u8>> {
    let asked = Message::from_vec(question).ok()?;
    if asked.metadata.message_type != MessageType::Query {
        return None;
    }
    let mut said = Message::new(asked.metadata.id, MessageType::Response, asked.metadata.op_code);
    said.metadata = Metadata::response_from_request(&asked.metadata);
    said.metadata.recursion_available = true;
    said.queries.clone_from(&asked.queries);
    if let Some(edns) = &asked.edns {
        let mut own = Edns::new();
        own.set_max_payload(UDP_BYTES_MAX as u16);
        own.set_dnssec_ok(edns.flags().dnssec_ok);
        said.edns = Some(own);
    }
    match judged(links, link, &asked).await {
        Ok(records) => said.answers = records,
        Err((code, why)) => {
            said.metadata.response_code = code;
            if let (Some(edns), Some(why)) = (&mut said.edns, why) {
                let mut data = BLOCKED.to_be_bytes().to_vec();
                data.extend_from_slice(format!("isolet: rule {why}").as_bytes());
                edns.options_mut().insert(EdnsOption::Unknown(EXTENDED_ERROR, data));
            }
        }
    }
    let bytes = said.to_vec().ok()?;
    let room = asked.edns.as_ref().map_or(UDP_BYTES_PLAIN, |edns| usize::from(edns.max_payload()));
    if !udp || bytes.len() <= room.clamp(UDP_BYTES_PLAIN, UDP_BYTES_MAX) {
        return Some(bytes);
    }
    said.answers.clear();
    said.metadata.truncation = true;
    said.to_vec().ok()
}

/// A code, and the rule that refuses.
type No = (ResponseCode, Option<String>);

async fn judged(links: &Links, link: &Link, asked: &Message) -> Result<Vec<Record>, No> {
    let [question] = &asked.queries[..] else { return Err((ResponseCode::FormErr, None)) };
    if asked.metadata.op_code != OpCode::Query {
        return Err((ResponseCode::NotImp, None));
    }
    if question.query_class() != DNSClass::IN {
        return Err((ResponseCode::Refused, None));
    }
    let text = question.name().to_ascii();
    let refuse = |code, rule: &str| {
        // Who looks for the name of an address wants to show it, not to go there.
        if !text.ends_with(".arpa.") {
            links.unnamed(link, text.trim_end_matches('.'), rule);
        }
        Err((code, Some(rule.to_owned())))
    };
    if !link.may_ask() {
        return refuse(ResponseCode::Refused, "limit");
    }
    let Some(name) = host(&text) else { return refuse(ResponseCode::NXDomain, "default") };
    let policy = link.policy();
    match policy.judge(&To { name: Some(&name), ..To::default() }) {
        Verdict::Allowed(_) => {}
        Verdict::Refused(rule) => return refuse(ResponseCode::NXDomain, &said(rule)),
    }
    let found = match question.query_type() {
        RecordType::A => addresses(links, link, question, &name).await,
        // Nothing goes by IPv6, and no hint leads round the rules.
        RecordType::AAAA | RecordType::HTTPS | RecordType::SVCB => Ok(Vec::new()),
        RecordType::TXT
        | RecordType::MX
        | RecordType::SRV
        | RecordType::NS
        | RecordType::SOA
        | RecordType::CAA
        | RecordType::PTR
        | RecordType::NAPTR
        | RecordType::SSHFP
        | RecordType::TLSA => handed_on(links, link, question).await,
        _ => return Err((ResponseCode::NotImp, None)),
    };
    match found {
        Ok(records) => Ok(records),
        Err(Unresolved::Unknown) => Err((ResponseCode::NXDomain, None)),
        Err(Unresolved::Failed) => Err((ResponseCode::ServFail, None)),
        Err(Unresolved::Closed(why)) => refuse(ResponseCode::NXDomain, why),
        Err(Unresolved::TooMany) => refuse(ResponseCode::Refused, "limit"),
    }
}

async fn addresses(
    links: &Links,
    link: &Link,
    question: &Query,
    name: &str,
) -> Result<Vec<Record>, Unresolved> {
    let (addresses, left) = resolve::addresses(links, link, name).await?;
    let ttl = left.as_secs().max(1) as u32;
    let record = |address| Record::from_rdata(question.name().clone(), ttl, RData::A(A(address)));
    Ok(addresses.into_iter().map(record).collect())
}

/// What is no address, of a name that is allowed.
async fn handed_on(
    links: &Links,
    link: &Link,
    question: &Query,
) -> Result<Vec<Record>, Unresolved> {
    let answer = resolve::records(links, link, question).await?;
    let of_type = answer.into_iter().filter(|one| one.record_type() == question.query_type());
    let own = of_type.map(|mut one| {
        one.name = question.name().clone();
        one
    });
    Ok(own.take(RECORDS_MAX).collect())
}
