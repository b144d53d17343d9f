//! The end of everything that a data directory runs, without a server: before the package is
//! removed, and at the start of a container, whose processes ended with the container before.

use super::recover::{at, lock};
use crate::model::config::Config;
use crate::model::error::OpenError;
use isolet_jail::{Ended, identity};
use std::io::ErrorKind;
use std::time::Duration;

/// How long a server that was just stopped may take to release the data directory.
const RELEASE_WAIT: Duration = Duration::from_secs(5);

/// Ends all sandboxes of the configuration's data directory. Their files stay, and the next server
/// finds them asleep. Does nothing if there is no data directory. Reads no records, so the directory
/// may have any format. Blocks.
///
/// # Errors
/// [`OpenError::Held`] while a server uses the data directory, and errors of reading it. Failures
/// of single sandboxes are listed in the result.
pub fn teardown(mut config: Config) -> Result<Ended, OpenError> {
    let data = config.data_dir.clone();
    match std::fs::metadata(&data) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Ended::default()),
        found => {
            found.map_err(at(&data))?;
        }
    }
    let _lock = lock(&data, RELEASE_WAIT)?;
    config.cgroup = identity::adopt(&config.jail()).map_err(at(&data))?.cgroup;
    isolet_jail::end_all(&config.jail()).map_err(at(&data))
}
