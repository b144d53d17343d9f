//! The bounds of resource limits.

use super::bad;
use crate::model::config::Config;
use crate::model::error::Error;
use isolet_wire::launcher::Limits;

/// Minimum memory, in MiB; a shell needs that much.
const MEMORY_MIB_MIN: u64 = 16;
/// Minimum processor time, in thousandths of one core.
const CPU_MILLIS_MIN: u64 = 10;
/// Minimum number of processes; a shell and its commands need that many.
const PIDS_MIN: u64 = 8;
/// Minimum disk size, in MiB; a file system with its journal needs that much.
const DISK_MIB_MIN: u64 = 32;

fn within(field: &'static str, value: u64, min: u64, max: u64) -> Result<u64, Error> {
    if (min..=max).contains(&value) {
        Ok(value)
    } else {
        Err(bad(field, format!("{value} is not within {min} and {max}")))
    }
}

/// Checks the limits of a request.
pub(crate) fn check_limits(config: &Config, limits: Limits) -> Result<Limits, Error> {
    let max = config.limits_max;
    Ok(Limits {
        memory_mib: within("memory_mib", limits.memory_mib, MEMORY_MIB_MIN, max.memory_mib)?,
        cpu_millis: within("cpu_millis", limits.cpu_millis, CPU_MILLIS_MIN, max.cpu_millis)?,
        pids: within("pids", limits.pids, PIDS_MIN, max.pids)?,
        disk_mib: match limits.disk_mib {
            0 => 0,
            mib => within("disk_mib", mib, DISK_MIB_MIN, max.disk_mib)?,
        },
    })
}
