//! The rules of the protocol, which tests break one at a time.

/// Which rules hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The guard freezes at the deadline, and admits nothing after it.
    pub(crate) guard: bool,
    /// The guard admits only what was confirmed under the registration that it knows.
    pub(crate) registration_compared: bool,
    /// A takeover compares that the former node's lease has ended.
    pub(crate) lease_compared: bool,
    /// A node compares epochs before it continues under a new registration.
    pub(crate) epochs_compared: bool,
    /// The deadline counts from when the renewal was sent.
    pub(crate) counted_from_sending: bool,
    /// The deadline moves only after a proof that the leader of etcd renewed the lease.
    pub(crate) renewals_proved: bool,
    /// A sandbox is stored away only after its processes have ended for good.
    pub(crate) stored_after_end: bool,
    /// Writes carry the epoch.
    pub(crate) writes_fenced: bool,
    /// The server freezes at the deadline while the guard does not answer.
    pub(crate) server_freezes: bool,
    /// A node gives up a watch of which it hears nothing, and reads everything again.
    pub(crate) silence_ends: bool,
    /// A store that does not find what etcd names is asked again.
    pub(crate) not_found_is_no_answer: bool,
    /// By how many ticks the deadline is earlier than the end of the lease.
    pub(crate) margin: u8,
}

impl Rules {
    /// The protocol as it is.
    pub(crate) fn all() -> Self {
        Self {
            guard: true,
            registration_compared: true,
            lease_compared: true,
            epochs_compared: true,
            counted_from_sending: true,
            renewals_proved: true,
            stored_after_end: true,
            writes_fenced: true,
            server_freezes: true,
            silence_ends: true,
            not_found_is_no_answer: true,
            margin: 2,
        }
    }
}
