//! Which classes of sandboxes a server has.

use super::bad;
use crate::model::config::Config;
use crate::model::error::Error;
use crate::model::info::class::SandboxClass;
use crate::model::record::RecordBody;

/// Refuses a class that this server does not have, and one that does not fit the other settings.
pub(crate) fn check_class(
    config: &Config,
    class: SandboxClass,
    persistent: Option<bool>,
) -> Result<(), Error> {
    let lack = match config.fleet {
        _ if class == SandboxClass::Node => return Ok(()),
        Some(fleet) if fleet.allows_store => match &config.store {
            Some(_) if persistent == Some(false) => {
                let reason = "another node restores the files of a sandbox of the class store, so \
                              they outlive a sleep";
                return Err(bad("persistent", reason.to_owned()));
            }
            Some(_) => return Ok(()),
            None => {
                "this node has no object store for its snapshots: it needs the table [store] in its \
                 configuration file"
            }
        },
        None => {
            "this server is no node of a fleet: it needs the table [cluster] in its configuration \
             file, with store = true, and the table [store]"
        }
        Some(_) => {
            "this node holds none: it needs store = true in the table [cluster] of its \
             configuration file"
        }
    };
    Err(Error::NoClass { class: class.word(), lack })
}

impl RecordBody {
    /// Whether it is on another node, or only in the object store, once it is removed from this one.
    pub(crate) fn lives_on(&self) -> bool {
        self.superseded.is_some() || self.departure.is_some()
    }
}
