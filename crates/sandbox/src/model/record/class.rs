//! Which classes of sandboxes a server has.

use crate::model::config::Config;
use crate::model::error::Error;
use crate::model::info::class::SandboxClass;

/// Refuses a class that this server does not have.
pub(super) fn check_class(config: &Config, class: SandboxClass) -> Result<(), Error> {
    let lack = match config.fleet {
        _ if class == SandboxClass::Node => return Ok(()),
        Some(fleet) if fleet.allows_store => return Ok(()),
        None => {
            "this server is no node of a fleet: it needs the table [cluster] in its configuration \
             file, with store = true"
        }
        Some(_) => {
            "this node holds none: it needs store = true in the table [cluster] of its \
             configuration file"
        }
    };
    Err(Error::NoClass { class: class.word(), lack })
}
