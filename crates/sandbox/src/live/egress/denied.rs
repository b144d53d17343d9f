//! Records the network denials that the egress proxy and the packet filter report.

use crate::live::entry::SandboxEntry;
use crate::live::inner::Inner;
use crate::model::clock::now_ms;
use crate::model::events::EventKind;
use isolet_wire::network::NetworkDenial;

impl Inner {
    /// Records a denial and publishes it as an event.
    pub(crate) fn refused(&self, entry: &SandboxEntry, refused: NetworkDenial) {
        self.metrics.requests.egress_denials.inc_by(refused.times.into());
        if entry.refusals.push(refused.clone(), now_ms()) {
            self.events.emit(entry, EventKind::NetworkDenied(refused));
        }
    }
}
