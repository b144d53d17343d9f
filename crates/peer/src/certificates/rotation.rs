//! The steps of a rotation of the CA; [`super`] draws them.

use crate::certificates::authority::Authority;
use crate::certificates::directory::Cluster;
use crate::certificates::error::CertificateError;
use crate::certificates::index::{AuthorityState, CertificateRecord, CertificateState};
use isolet_wire::node::NodeName;

/// Why a step of a rotation is not possible now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RotationError {
    /// `start` while a rotation is under way.
    #[error("a rotation of the CA is under way; continue with `isolet cluster rotate-ca {next}`")]
    UnderWay {
        /// The next step.
        next: &'static str,
    },
    /// `switch` or `finish` without a rotation.
    #[error("no rotation of the CA is under way; begin with `isolet cluster rotate-ca start`")]
    NotStarted,
    /// `switch` for the second time.
    #[error(
        "the new CA issues certificates already; continue with `isolet cluster rotate-ca finish`"
    )]
    Switched,
    /// `finish` before `switch`.
    #[error(
        "the old CA still issues certificates; continue with `isolet cluster rotate-ca switch`"
    )]
    NotSwitched,
    /// `finish` while nodes have certificates of the old authority only.
    #[error("the newest certificate of these nodes is from the old CA: {}; renew it with `isolet cluster renew`, or revoke it", listed(.0))]
    StillUsed(Vec<NodeName>),
}

/// The most nodes that an error lists.
const LISTED_MAX: usize = 20;

fn listed(nodes: &[NodeName]) -> String {
    let shown: Vec<&str> = nodes.iter().take(LISTED_MAX).map(NodeName::as_str).collect();
    let more = nodes.len().saturating_sub(LISTED_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", shown.join(", "))
}

impl Cluster {
    /// Creates a second authority, which is trusted and issues nothing yet.
    ///
    /// # Errors
    /// A rotation is under way, or a file cannot be written.
    pub fn start_rotation(&mut self, now_s: i64) -> Result<(), CertificateError> {
        match self.rotating() {
            Some(AuthorityState::Incoming) => {
                return Err(RotationError::UnderWay { next: "switch" }.into());
            }
            Some(_) => return Err(RotationError::UnderWay { next: "finish" }.into()),
            None => {}
        }
        let last = self.index.authorities.iter().map(|record| record.id).max().unwrap_or(0);
        let incoming = AuthorityState::Incoming;
        let created = Authority::create(&self.directory, last + 1, incoming, now_s)?;
        self.index.authorities.push(created);
        self.save(now_s).map(drop)
    }

    /// Lets the new authority issue certificates. Before that, every node must have the files
    /// `ca.pem` and `revoked.pem` that `start` wrote.
    ///
    /// # Errors
    /// No rotation waits for this step, or a file cannot be written.
    pub fn switch_rotation(&mut self, now_s: i64) -> Result<(), CertificateError> {
        match self.rotating() {
            None => return Err(RotationError::NotStarted.into()),
            Some(AuthorityState::Incoming) => {}
            Some(_) => return Err(RotationError::Switched.into()),
        }
        for record in &mut self.index.authorities {
            record.state = match record.state {
                AuthorityState::Incoming => AuthorityState::Issuing,
                _ => AuthorityState::Outgoing,
            };
        }
        self.save(now_s).map(drop)
    }

    /// Ends the trust in the old authority, and deletes its key.
    ///
    /// # Errors
    /// No rotation waits for this step, a node has no certificate of the new authority, or a file
    /// cannot be written.
    pub fn finish_rotation(&mut self, now_s: i64) -> Result<(), CertificateError> {
        match self.rotating() {
            None => return Err(RotationError::NotStarted.into()),
            Some(AuthorityState::Incoming) => return Err(RotationError::NotSwitched.into()),
            Some(_) => {}
        }
        let issuing = self.index.issuing().map(|record| record.id);
        let is_old = |record: &&CertificateRecord| Some(record.authority) != issuing;
        let in_use = |record: &&CertificateRecord| {
            self.index.state(record, now_s) == CertificateState::Valid
        };
        let used = self.index.certificates.iter().filter(is_old).filter(in_use);
        let mut used: Vec<NodeName> = used.map(|record| record.node.clone()).collect();
        used.sort();
        if !used.is_empty() {
            return Err(RotationError::StillUsed(used).into());
        }
        self.index.authorities.retain(|record| record.state != AuthorityState::Outgoing);
        self.index.certificates.retain(|record| Some(record.authority) == issuing);
        self.save(now_s)?;
        self.remove_old_keys()
    }

    /// The state of the authority that a rotation adds or removes; `None` without a rotation.
    fn rotating(&self) -> Option<AuthorityState> {
        let states = self.index.authorities.iter().map(|record| record.state);
        states.into_iter().find(|state| *state != AuthorityState::Issuing)
    }
}
