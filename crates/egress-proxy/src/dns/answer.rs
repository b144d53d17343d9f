//! Answers one DNS query by the rules of the sandbox.
//!
//! Only IPv4 addresses are answered, under the name of the query: aliases (`CNAME`) are not shown,
//! and an alias allows nothing. Addresses that the guard closes are left out. A name that the rules
//! deny does not exist (`NXDOMAIN`, without a SOA record, so that it is not cached and a new rule
//! takes effect); clients that support extended errors (RFC 8914) get the reason.

use super::resolve::{self, ResolveError};
use super::upstream::UDP_BYTES_MAX;
use crate::policy::rule_text;
use crate::state::sandbox::SandboxEntry;
use crate::state::table::SandboxTable;
use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};
use isolet_wire::network::{NetworkDestination, Verdict, host};

/// Largest UDP response to a client without EDNS, in bytes.
const UDP_BYTES_WITHOUT_EDNS: usize = 512;
/// Records of an upstream response that are forwarded.
const RECORDS_MAX: usize = 32;
/// Info code of an extended error (RFC 8914): blocked by the operator of the server.
const BLOCKED: u16 = 15;
/// EDNS option of extended errors.
const EXTENDED_ERROR_OPTION: u16 = 15;

/// The transport that a query came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Udp,
    Tcp,
}

/// The response to one query, as bytes; `None`: the bytes are no query. By UDP a response that is
/// too long is truncated.
pub(crate) async fn answer(
    sandboxes: &SandboxTable,
    sandbox: &SandboxEntry,
    query: &[u8],
    transport: Transport,
) -> Option<Vec<u8>> {
    let request = Message::from_vec(query).ok()?;
    if request.metadata.message_type != MessageType::Query {
        return None;
    }
    let mut response =
        Message::new(request.metadata.id, MessageType::Response, request.metadata.op_code);
    response.metadata = Metadata::response_from_request(&request.metadata);
    response.metadata.recursion_available = true;
    response.queries.clone_from(&request.queries);
    if let Some(edns) = &request.edns {
        let mut own = Edns::new();
        own.set_max_payload(UDP_BYTES_MAX as u16);
        own.set_dnssec_ok(edns.flags().dnssec_ok);
        response.edns = Some(own);
    }
    match resolve_query(sandboxes, sandbox, &request).await {
        Ok(records) => response.answers = records,
        Err(DnsRefusal { code, rule }) => {
            response.metadata.response_code = code;
            if let Some(edns) = &mut response.edns
                && let Some(rule) = rule
            {
                let mut data = BLOCKED.to_be_bytes().to_vec();
                data.extend_from_slice(format!("isolet: rule {rule}").as_bytes());
                edns.options_mut().insert(EdnsOption::Unknown(EXTENDED_ERROR_OPTION, data));
            }
        }
    }
    let bytes = response.to_vec().ok()?;
    let bytes_max = request
        .edns
        .as_ref()
        .map_or(UDP_BYTES_WITHOUT_EDNS, |edns| usize::from(edns.max_payload()));
    if transport == Transport::Tcp
        || bytes.len() <= bytes_max.clamp(UDP_BYTES_WITHOUT_EDNS, UDP_BYTES_MAX)
    {
        return Some(bytes);
    }
    response.answers.clear();
    response.metadata.truncation = true;
    response.to_vec().ok()
}

/// Why a query gets no records.
struct DnsRefusal {
    code: ResponseCode,
    /// The rule or reason that denies it.
    rule: Option<String>,
}

impl From<ResponseCode> for DnsRefusal {
    fn from(code: ResponseCode) -> Self {
        Self { code, rule: None }
    }
}

async fn resolve_query(
    sandboxes: &SandboxTable,
    sandbox: &SandboxEntry,
    request: &Message,
) -> Result<Vec<Record>, DnsRefusal> {
    let [question] = &request.queries[..] else { return Err(ResponseCode::FormErr.into()) };
    if request.metadata.op_code != OpCode::Query {
        return Err(ResponseCode::NotImp.into());
    }
    if question.query_class() != DNSClass::IN {
        return Err(ResponseCode::Refused.into());
    }
    let text = question.name().to_ascii();
    let deny = |code, rule: &str| {
        // A reverse lookup is made to display a name, not to connect.
        if !text.ends_with(".arpa.") {
            sandboxes.log_denied_query(sandbox, text.trim_end_matches('.'), rule);
        }
        Err(DnsRefusal { code, rule: Some(rule.to_owned()) })
    };
    if !sandbox.take_query() {
        return deny(ResponseCode::Refused, "limit");
    }
    let Some(name) = host(&text) else { return deny(ResponseCode::NXDomain, "default") };
    let policy = sandbox.policy();
    match policy.decide(&NetworkDestination { name: Some(&name), ..NetworkDestination::default() })
    {
        Verdict::Allowed(_) => {}
        Verdict::Refused(rule) => return deny(ResponseCode::NXDomain, &rule_text(rule)),
    }
    let resolved = match question.query_type() {
        RecordType::A => addresses(sandboxes, sandbox, question, &name).await,
        // There is no IPv6, and connection hints must not bypass the rules.
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
        | RecordType::TLSA => forwarded(sandboxes, sandbox, question).await,
        _ => return Err(ResponseCode::NotImp.into()),
    };
    match resolved {
        Ok(records) => Ok(records),
        Err(ResolveError::NoSuchHost) => Err(ResponseCode::NXDomain.into()),
        Err(ResolveError::NoAnswer) => Err(ResponseCode::ServFail.into()),
        Err(ResolveError::Closed(reason)) => deny(ResponseCode::NXDomain, reason),
        Err(ResolveError::TooMany) => deny(ResponseCode::Refused, "limit"),
    }
}

async fn addresses(
    sandboxes: &SandboxTable,
    sandbox: &SandboxEntry,
    question: &Query,
    name: &str,
) -> Result<Vec<Record>, ResolveError> {
    let answer = resolve::addresses(sandboxes, sandbox, name).await?;
    let ttl = answer.ttl.as_secs().max(1) as u32;
    let record = |address| Record::from_rdata(question.name().clone(), ttl, RData::A(A(address)));
    Ok(answer.addresses.into_iter().map(record).collect())
}

/// Records of other types, for a name that is allowed.
async fn forwarded(
    sandboxes: &SandboxTable,
    sandbox: &SandboxEntry,
    question: &Query,
) -> Result<Vec<Record>, ResolveError> {
    let records = resolve::records(sandboxes, sandbox, question).await?;
    let of_type = records.into_iter().filter(|one| one.record_type() == question.query_type());
    let renamed = of_type.map(|mut one| {
        one.name = question.name().clone();
        one
    });
    Ok(renamed.take(RECORDS_MAX).collect())
}
