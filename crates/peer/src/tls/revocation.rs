//! Revocation lists that nodes exchange.

use crate::files;
use crate::parsed::{Anchor, RevocationList, list_to_pem, lists_of};
use crate::tls::{LoadError, PeerTls, lists_by_authority, lists_text, reload};
use std::sync::PoisonError;
use tracing::warn;

/// The number of the revocation list that a node uses for one authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListNumber {
    /// SHA-256 of the certificate of the authority, in hexadecimal digits.
    pub authority: String,
    /// Increases with each list of the authority.
    pub number: u64,
}

/// A revocation list with its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedList {
    /// Whose list it is, and which.
    pub number: ListNumber,
    /// The list as PEM.
    pub pem: String,
}

/// The lists in a text whose authorities a node does not trust. An operator may just be copying the
/// file of the new authority, which needs them.
fn lists_of_others(anchors: &[Anchor], text: &[u8]) -> String {
    let mut all = lists_of(text).unwrap_or_default();
    all.retain(|list| {
        let alone = std::slice::from_ref(list);
        let signed =
            |anchor| RevocationList::newest_of(anchor, alone).is_ok_and(|own| own.is_some());
        !anchors.iter().any(signed)
    });
    all.iter().map(list_to_pem).collect()
}

impl PeerTls {
    /// Revocation lists as PEM, for other nodes.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn revocation_lists(&self) -> std::io::Result<Vec<u8>> {
        files::read(&self.0.state.files.revoked)
    }

    /// Takes revocation lists into use that came from elsewhere, and writes them to the file.
    /// Returns whether they were newer. They need no trust in who passed them on, because they
    /// are signed by the CA, and the number of a list never decreases. If the file cannot be
    /// written, that is logged, and they are in use until the process ends. Blocks.
    ///
    /// # Errors
    /// A trusted CA has no list among them, or a file of this node is unusable.
    pub fn install_revoked(&self, lists: &[u8]) -> Result<bool, LoadError> {
        let mut received = self.0.state.received.lock().unwrap_or_else(PoisonError::into_inner);
        self.install(&mut received, lists)
    }

    /// Takes each list into use that is newer than that of this node, like
    /// [`Self::install_revoked`]. Authorities without a list among these keep theirs, and a list that
    /// an operator has just copied to the file of this node is not lost. Blocks.
    ///
    /// # Errors
    /// The text is not PEM, or a file of this node is unusable.
    pub fn merge_revoked(&self, lists: &[u8]) -> Result<bool, LoadError> {
        let state = &self.0.state;
        let mut received = state.received.lock().unwrap_or_else(PoisonError::into_inner);
        let own = lists_text(&state.files, received.as_bytes())?;
        self.install(&mut received, &[own.as_slice(), b"\n", lists].concat())
    }

    /// Takes lists into use if they are newer.
    fn install(&self, received: &mut String, lists: &[u8]) -> Result<bool, LoadError> {
        let state = &self.0.state;
        let current = self.identity();
        let offered = lists_by_authority(&current.anchors, lists).map_err(LoadError::offered)?;
        let numbers: Vec<u64> = offered.iter().map(|list| list.number).collect();
        let is_older = current.list_numbers.iter().zip(&numbers).any(|(own, new)| new < own);
        if current.list_numbers == numbers || is_older {
            return Ok(false);
        }
        // Nothing else of the text: it came from elsewhere.
        *received = offered.iter().map(RevocationList::to_pem).collect();
        let path = &state.files.revoked;
        let kept = lists_of_others(&current.anchors, &files::read(path).unwrap_or_default());
        if let Err(error) = files::replace(path, format!("{received}{kept}").as_bytes()) {
            warn!(
                path = %path.display(),
                %error,
                "newer revocation lists are in use, but cannot be written; let the server write this \
                 directory, or a restart uses the old lists until it reaches the fleet"
            );
        }
        reload::load(state, received.as_bytes())?;
        Ok(true)
    }

    /// The numbers of the revocation lists in use, one for each trusted authority.
    #[must_use]
    pub fn list_numbers(&self) -> Vec<ListNumber> {
        let identity = self.identity();
        let pairs = identity.anchors.iter().zip(&identity.list_numbers);
        let number = |(anchor, number): (&Anchor, &u64)| ListNumber {
            authority: anchor.fingerprint.clone(),
            number: *number,
        };
        pairs.map(number).collect()
    }

    /// The newest revocation list that this node has of each trusted authority. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, or lacks a list: it is being replaced, or was replaced by an
    /// unusable one.
    pub fn signed_lists(&self) -> Result<Vec<SignedList>, LoadError> {
        let state = &self.0.state;
        let text = {
            let received = state.received.lock().unwrap_or_else(PoisonError::into_inner);
            lists_text(&state.files, received.as_bytes())?
        };
        let path = &state.files.revoked;
        let anchors = &self.identity().anchors;
        let lists = lists_by_authority(anchors, &text).map_err(|problem| problem.at(path))?;
        let signed = |(anchor, list): (&Anchor, &RevocationList)| SignedList {
            number: ListNumber { authority: anchor.fingerprint.clone(), number: list.number },
            pem: list.to_pem(),
        };
        Ok(anchors.iter().zip(&lists).map(signed).collect())
    }

    /// The number of the newest list in a text that this authority signed. `None`: there is none, or
    /// this node does not trust the authority. Blocks for the signatures.
    #[must_use]
    pub fn number_of_list(&self, authority: &str, text: &[u8]) -> Option<u64> {
        let identity = self.identity();
        let anchor = identity.anchors.iter().find(|anchor| anchor.fingerprint == authority)?;
        let newest = RevocationList::newest_of(anchor, &lists_of(text).ok()?);
        newest.ok().flatten().map(|list| list.number)
    }
}
