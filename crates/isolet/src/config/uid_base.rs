//! The setting `uid_base`: the ids of sandboxes on this machine.

use anyhow::{Result, bail};
use isolet_jail::{UID_BASE, UIDS};

/// The largest value: one sandbox fits above it, below the ids that the kernel reserves.
const LARGEST: u32 = 0xefff_0000;

/// Checks the setting.
///
/// # Errors
/// When it is no beginning of a range that a sandbox can have.
pub(crate) fn of(setting: Option<u32>) -> Result<u32> {
    let base = setting.unwrap_or(UID_BASE);
    if !(UID_BASE..=LARGEST).contains(&base) || !base.is_multiple_of(UIDS) {
        bail!("uid_base must be a multiple of {UIDS} from {UID_BASE} to {LARGEST}: {base}");
    }
    Ok(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_lies_above_those_of_containers_and_begins_where_one_of_a_sandbox_can() {
        assert_eq!(of(None).unwrap(), UID_BASE);
        for good in [UID_BASE, UID_BASE + UIDS, 0x9000_0000, LARGEST] {
            assert_eq!(of(Some(good)).unwrap(), good);
        }
        for bad in [0, 1000, UID_BASE - UIDS, UID_BASE + 1, LARGEST + UIDS, u32::MAX] {
            assert!(of(Some(bad)).unwrap_err().to_string().contains("uid_base"), "{bad}");
        }
    }
}
