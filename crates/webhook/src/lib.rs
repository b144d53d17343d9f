//! Webhooks: what happens to the sandboxes of a tenant is sent to the URLs that it has registered.
//!
//! The events come from the audit log of the tenant, which is durable and ordered. Each webhook has a
//! task that reads the entries behind its cursor, sends one request per event, and moves the cursor when
//! the receiver has answered with 2xx. So events arrive in order and at least once, also when the server
//! is killed, and a slow receiver delays only its own webhook.
//!
//! The layers, bottom first; each uses only those above it in this list:
//!
//! - `error`: why a call failed.
//! - `model`: data and rules, without connections: URLs, addresses, filters, secrets, the schedule.
//! - `delivery`: one request to a receiver; the task of a webhook; the limits on attempts.
//! - `webhooks`: [`Webhooks`], all webhooks of a server.
#![forbid(unsafe_code)]

mod delivery;
mod error;
mod model;
mod webhooks;

pub use delivery::sender::TestResult;
pub use error::Error;
pub use model::address::AddressRules;
pub use model::event::{EVENTS, EventKind};
pub use model::progress::{Disabled, DisabledReason, Progress};
pub use model::schedule::{GIVE_UP_AFTER, RETRY_AFTER, RetrySchedule};
pub use model::settings::{KeySource, Settings};
pub use model::spec::{LABEL_BYTES_MAX, NewWebhook, WEBHOOKS_MAX, WebhookChange};
pub use webhooks::fleet::{FleetFuture, FleetRecords, PutOutcome, ReplaceOutcome};
pub use webhooks::{NewAnswer, WebhookInfo, Webhooks};
