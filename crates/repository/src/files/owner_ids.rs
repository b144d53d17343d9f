//! Owners, counted from the first id of a sandbox, so that a server with another range of ids can
//! give them to its own sandboxes.

/// The number of ids of a sandbox.
const IDS: u32 = 65_536;
/// The owner of a file whose own one is not an id of the sandbox.
const NOBODY: u32 = 65_534;
/// The version of an ACL, by the kernel.
const ACL_VERSION: u32 = 2;
/// Entries of an ACL for one user and one group.
const ACL_USER: u16 = 0x02;
const ACL_GROUP: u16 = 0x08;
/// Revision 3 of file capabilities, which have the id of a root user at the end.
const CAPABILITY_REVISION: u32 = 0x0300_0000;
const CAPABILITY_REVISION_MASK: u32 = 0xff00_0000;
const CAPABILITY_ROOT_AT: usize = 20;

/// Which ids the files of a root have on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerIds {
    /// Those of the server; they stay as they are.
    Server,
    /// Those of a sandbox, from this one up.
    From(u32),
}

impl OwnerIds {
    /// The id in a stream for one on this machine.
    pub(crate) fn portable(self, id: u32) -> u32 {
        match self {
            Self::Server => id,
            Self::From(first) => id.checked_sub(first).filter(|id| *id < IDS).unwrap_or(NOBODY),
        }
    }

    /// An extended attribute with the ids in it changed in the same way.
    pub(crate) fn portable_value(self, name: &[u8], mut value: Vec<u8>) -> Vec<u8> {
        if matches!(self, Self::Server | Self::From(0)) {
            return value;
        }
        match name {
            b"system.posix_acl_access" | b"system.posix_acl_default" => self.acl(&mut value),
            b"security.capability" => self.capability(&mut value),
            _ => {}
        }
        value
    }

    fn acl(self, value: &mut [u8]) {
        let Some((version, entries)) = value.split_first_chunk_mut::<4>() else { return };
        if u32::from_le_bytes(*version) != ACL_VERSION {
            return;
        }
        for entry in entries.chunks_exact_mut(8) {
            let tag = u16::from_le_bytes([entry[0], entry[1]]);
            if tag == ACL_USER || tag == ACL_GROUP {
                self.change(&mut entry[4..8]);
            }
        }
    }

    fn capability(self, value: &mut [u8]) {
        let Some(magic) = value.first_chunk::<4>() else { return };
        if u32::from_le_bytes(*magic) & CAPABILITY_REVISION_MASK == CAPABILITY_REVISION
            && value.len() >= CAPABILITY_ROOT_AT + 4
        {
            self.change(&mut value[CAPABILITY_ROOT_AT..CAPABILITY_ROOT_AT + 4]);
        }
    }

    fn change(self, field: &mut [u8]) {
        if let Ok(id) = <[u8; 4]>::try_from(&*field) {
            field.copy_from_slice(&self.portable(u32::from_le_bytes(id)).to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_counted_from_the_first_one_of_the_sandbox() {
        let ids = OwnerIds::From(100_000);
        assert_eq!(ids.portable(100_000), 0);
        assert_eq!(ids.portable(101_000), 1000);
        assert_eq!(ids.portable(0), NOBODY, "the host's root is nobody");
        assert_eq!(ids.portable(100_000 + IDS), NOBODY);
        assert_eq!(OwnerIds::From(0).portable(1000), 1000);
        assert_eq!(OwnerIds::Server.portable(4_000_000_000), 4_000_000_000);
    }

    #[test]
    fn ids_in_attributes_change_too() {
        let ids = OwnerIds::From(100_000);
        let mut acl = ACL_VERSION.to_le_bytes().to_vec();
        for (tag, id) in [(0x01_u16, u32::MAX), (ACL_USER, 101_000), (0x20, u32::MAX)] {
            acl.extend_from_slice(&tag.to_le_bytes());
            acl.extend_from_slice(&7_u16.to_le_bytes());
            acl.extend_from_slice(&id.to_le_bytes());
        }
        let changed = ids.portable_value(b"system.posix_acl_access", acl.clone());
        assert_eq!(changed[8..12], acl[8..12], "an entry without an id");
        assert_eq!(changed[16..20], 1000_u32.to_le_bytes());
        let mut capability = (CAPABILITY_REVISION | 1).to_le_bytes().to_vec();
        capability.resize(CAPABILITY_ROOT_AT, 0);
        capability.extend_from_slice(&100_000_u32.to_le_bytes());
        let changed = ids.portable_value(b"security.capability", capability);
        assert_eq!(changed[CAPABILITY_ROOT_AT..], [0; 4]);
        assert_eq!(ids.portable_value(b"user.any", vec![2, 0, 0, 0]), [2, 0, 0, 0]);
    }
}
