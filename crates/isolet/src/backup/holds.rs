//! How sandboxes stand still during a backup: by the server, or, if none runs, by this program.

use crate::admin::client::AdminClient;
use crate::admin::{AdminRequest, AdminResponse};
use isolet_backup::{Error, Held, Holds};
use isolet_sandbox::offline;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The running server holds sandboxes.
pub(super) struct ServerHolds {
    client: AdminClient,
}

impl ServerHolds {
    pub(super) fn new(client: AdminClient) -> Self {
        Self { client }
    }

    fn ask(&mut self, request: &AdminRequest) -> Result<AdminResponse, Error> {
        self.client.ask(request).map_err(|error| Error::Server(format!("{error:#}")))
    }
}

impl Holds for ServerHolds {
    fn hold(&mut self, name: &str) -> Result<Option<Held>, Error> {
        match self.ask(&AdminRequest::Hold { sandbox: name.to_owned() })? {
            AdminResponse::Held { state, frozen, unsaved_shells } => {
                Ok(Some(Held { state, frozen, unsaved_shells }))
            }
            AdminResponse::Gone => Ok(None),
            AdminResponse::Failed { message } => Err(Error::Hold(message)),
            other => Err(Error::Server(format!("unexpected answer {other:?}"))),
        }
    }

    fn release(&mut self) -> Result<Duration, Error> {
        match self.ask(&AdminRequest::Release)? {
            AdminResponse::Released { stood_us } => Ok(Duration::from_micros(stood_us)),
            AdminResponse::Expired => {
                Err(Error::Hold("copying its files took longer than 15 minutes".to_owned()))
            }
            AdminResponse::Failed { message } => Err(Error::Hold(message)),
            other => Err(Error::Server(format!("unexpected answer {other:?}"))),
        }
    }
}

/// This program freezes sandboxes. Nothing wakes one, because this program holds the lock.
pub(super) struct OfflineHolds {
    data: PathBuf,
    frozen: Option<offline::FrozenSandbox>,
    since: Instant,
}

impl OfflineHolds {
    pub(super) fn new(data: &Path) -> Self {
        Self { data: data.to_owned(), frozen: None, since: Instant::now() }
    }
}

impl Holds for OfflineHolds {
    fn hold(&mut self, name: &str) -> Result<Option<Held>, Error> {
        let Some(state) = offline::state(&self.data, name)? else { return Ok(None) };
        self.since = Instant::now();
        let frozen = offline::freeze(&self.data, name);
        self.frozen =
            frozen.map_err(|error| Error::Hold(format!("it cannot be frozen: {error}")))?;
        Ok(Some(Held { state, frozen: self.frozen.is_some(), unsaved_shells: 0 }))
    }

    fn release(&mut self) -> Result<Duration, Error> {
        self.frozen = None;
        Ok(self.since.elapsed())
    }
}
