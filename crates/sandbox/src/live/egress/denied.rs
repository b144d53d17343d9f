//! Records what the network of a sandbox refused.

use crate::{
    live::{entry::Entry, inner::Inner},
    model::{clock::now_ms, events::Happened},
};
use isolet_wire::network::Refused;

impl Inner {
    /// A sandbox was refused something.
    pub(crate) fn refused(&self, entry: &Entry, refused: Refused) {
        if entry.refusals.push(refused.clone(), now_ms()) {
            self.events.say(entry, Happened::NetworkDenied(refused));
        }
    }
}
