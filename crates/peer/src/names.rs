//! How a certificate names its node: by exactly one DNS name below a domain that no DNS server
//! answers for, so that TLS libraries compare it with the node that was dialled.

use isolet_wire::node::NodeName;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

/// The domain of the names in certificates. `.internal` is reserved for private use.
const SUFFIX: &str = ".node.isolet.internal";

/// A certificate does not name exactly one node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the certificate does not name exactly one node (DNS:NODE{SUFFIX})")]
pub struct NoNodeName;

/// The DNS name of a node in its certificate.
pub(crate) fn dns_name(node: &NodeName) -> String {
    format!("{node}{SUFFIX}")
}

/// The node that a certificate was issued to.
///
/// # Errors
/// [`NoNodeName`], also when the certificate has a further name.
pub(crate) fn node_of(certificate: &X509Certificate<'_>) -> Result<NodeName, NoNodeName> {
    let names = certificate.subject_alternative_name().map_err(|_| NoNodeName)?;
    let names = names.ok_or(NoNodeName)?;
    match names.value.general_names.as_slice() {
        [GeneralName::DNSName(name)] => {
            let node = name.strip_suffix(SUFFIX).ok_or(NoNodeName)?;
            NodeName::parse(node).map_err(|_| NoNodeName)
        }
        _ => Err(NoNodeName),
    }
}
