//! Reads the certificate and the key again when their files change and have rested.

use crate::tls::TlsFiles;
use isolet_peer::tls::watched_files::{INTERVAL, WatchedFiles};
use rustls::ServerConfig;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tracing::{error, info};

/// Sends each new usable pair, until nobody receives any more.
pub(super) async fn keep_current(
    files: TlsFiles,
    mut watched: WatchedFiles,
    current: watch::Sender<Arc<ServerConfig>>,
) {
    let mut clock = tokio::time::interval(INTERVAL);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = clock.tick() => {}
            () = current.closed() => return,
        }
        let checked = files.clone();
        // The files may be on a slow disk.
        let checked = tokio::task::spawn_blocking(move || {
            let loaded = watched.is_due().then(|| checked.load());
            if let Some(loaded) = &loaded {
                watched.was_read(loaded.is_ok());
            }
            (watched, loaded)
        });
        let Ok((after, loaded)) = checked.await else { return };
        watched = after;
        match loaded {
            None => {}
            Some(Ok(config)) => {
                current.send_replace(config);
                info!(certificate = %files.certificate.display(), "TLS certificate reloaded");
            }
            Some(Err(reason)) => error!(
                reason = format!("{reason:#}"),
                "the new TLS certificate is unusable; the previous one stays in use"
            ),
        }
    }
}
