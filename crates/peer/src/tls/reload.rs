//! Reads the files again when they change, and looks for certificates that expire.

use crate::files::EXPIRY_WARNING_S;
use crate::tls::error::LoadError;
use crate::tls::identity::Identity;
use crate::tls::watched_files::{INTERVAL, WatchedFiles};
use crate::tls::{TlsState, report_refused};
use std::sync::{Arc, PoisonError};
use tokio::time::MissedTickBehavior;
use tracing::{error, info, warn};

/// Seconds of a day.
const DAY_S: i64 = 86_400;

/// Keeps the identity current. The owner aborts it.
pub(super) async fn keep_current(state: Arc<TlsState>, mut watched: WatchedFiles) {
    let mut clock = tokio::time::interval(INTERVAL);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next_warning_s = 0;
    loop {
        clock.tick().await;
        let now_s = isolet_clock::now_ms() / 1000;
        state.links.close_expired(now_s);
        warn_of_expiry(&state, now_s, &mut next_warning_s);
        let checked = Arc::clone(&state);
        // The files may be on a slow disk, and signatures take time.
        let checked = tokio::task::spawn_blocking(move || {
            if watched.is_due() {
                let loaded = reload(&checked);
                watched.was_read(loaded.is_ok());
                if let Err(reason) = loaded {
                    error!(%reason, "the new certificates for other nodes are unusable; the previous ones stay in use");
                }
            }
            watched
        });
        let Ok(after) = checked.await else { return };
        watched = after;
    }
}

/// Reads the files when no other thread does. Blocks.
fn reload(state: &TlsState) -> Result<(), LoadError> {
    let received = state.received.lock().unwrap_or_else(PoisonError::into_inner);
    load(state, received.as_bytes())
}

/// Logs that the certificate of this node ends soon, once a day.
fn warn_of_expiry(state: &TlsState, now_s: i64, next_s: &mut i64) {
    let own = &state.links.identity().own;
    if now_s >= *next_s && own.expires_at_s.saturating_sub(now_s) < EXPIRY_WARNING_S {
        *next_s = now_s.saturating_add(DAY_S);
        let expires = isolet_clock::rfc3339(own.expires_at_s.saturating_mul(1000));
        let node = &own.node;
        warn!(%node, expires, "the certificate for other nodes ends soon; run `isolet cluster renew {node}`");
    }
}

/// Reads the files, and verifies all open connections with them. The caller has
/// locked `received`. Blocks.
pub(super) fn load(state: &TlsState, received: &[u8]) -> Result<(), LoadError> {
    let identity = Identity::load(&state.files, received)?;
    let own = state.links.identity().own.node.clone();
    if identity.own.node != own {
        let path = state.files.certificate.clone();
        return Err(LoadError::OtherNode { path, found: identity.own.node, own });
    }
    report_refused(&identity);
    info!(
        serial = identity.own.serial,
        authorities = identity.anchors.len(),
        lists = ?identity.list_numbers,
        "certificates for other nodes reloaded"
    );
    state.links.replace(identity);
    Ok(())
}
