//! How sandboxes stand still during a backup: by the server, or, if none runs, by a process of this
//! program.

use super::freezer::Freezer;
use crate::admin::client::{AdminClient, NoAnswer};
use crate::admin::{AdminRequest, AdminResponse};
use isolet_backup::{Error, Held, Holds};
use isolet_sandbox::offline;
use isolet_sandbox::offline::RecordedSandbox;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The running server holds sandboxes.
pub(super) struct ServerHolds {
    client: AdminClient,
}

impl ServerHolds {
    pub(super) fn new(client: AdminClient) -> Self {
        Self { client }
    }

    /// Asks the server. When it does not answer, only this sandbox is left out.
    fn ask(&mut self, request: &AdminRequest) -> Result<AdminResponse, Error> {
        let ended = |error: anyhow::Error| Error::Server(format!("{error:#}"));
        match self.client.ask(request) {
            Ok(response) => Ok(response),
            Err(error) if error.is::<NoAnswer>() => {
                self.client.reconnect().map_err(ended)?;
                Err(Error::Hold(error.to_string()))
            }
            Err(error) => Err(ended(error)),
        }
    }
}

impl Holds for ServerHolds {
    fn hold(&mut self, name: &str) -> Result<Option<Held>, Error> {
        held(self.ask(&AdminRequest::Hold { sandbox: name.to_owned() })?)
    }

    fn release(&mut self) -> Result<Duration, Error> {
        released(self.ask(&AdminRequest::Release)?)
    }
}

fn held(response: AdminResponse) -> Result<Option<Held>, Error> {
    match response {
        AdminResponse::Held { state, frozen, unsaved_shells } => {
            Ok(Some(Held { state, frozen, unsaved_shells }))
        }
        AdminResponse::Gone => Ok(None),
        AdminResponse::Failed { message } => Err(Error::Hold(message)),
        other => Err(Error::Server(format!("unexpected answer {other:?}"))),
    }
}

fn released(response: AdminResponse) -> Result<Duration, Error> {
    match response {
        AdminResponse::Released { stood_us } => Ok(Duration::from_micros(stood_us)),
        AdminResponse::Expired => {
            Err(Error::Hold("copying its files took longer than 15 minutes".to_owned()))
        }
        AdminResponse::Failed { message } => Err(Error::Hold(message)),
        other => Err(Error::Server(format!("unexpected answer {other:?}"))),
    }
}

/// This program freezes sandboxes. Nothing wakes or changes one, because this program holds the lock.
pub(super) struct OfflineHolds {
    data: PathBuf,
    recorded: HashMap<String, RecordedSandbox>,
    freezer: Freezer,
    /// The sandbox that may be frozen.
    holding: Option<String>,
}

impl OfflineHolds {
    pub(super) fn new(data: &Path) -> anyhow::Result<Self> {
        let recorded = offline::recorded(data)?;
        let freezer = Freezer::start(data)?;
        Ok(Self { data: data.to_owned(), recorded, freezer, holding: None })
    }

    fn ask(&mut self, request: &AdminRequest) -> Result<AdminResponse, Error> {
        self.freezer.ask(request).map_err(|error| {
            self.thaw();
            Error::Server(format!("the process that freezes sandboxes ended: {error}"))
        })
    }

    /// Lets a sandbox continue that the other process left frozen, because it was killed.
    fn thaw(&mut self) {
        if let Some(name) = self.holding.take() {
            drop(offline::freeze(&self.data, &name));
        }
    }
}

impl Holds for OfflineHolds {
    fn hold(&mut self, name: &str) -> Result<Option<Held>, Error> {
        let Some(RecordedSandbox { state, sessions }) = self.recorded.get(name).cloned() else {
            return Ok(None);
        };
        self.holding = Some(name.to_owned());
        let held = held(self.ask(&AdminRequest::Hold { sandbox: name.to_owned() })?)?;
        // No agent is asked to save its shells.
        let unsaved_shells = held.as_ref().map_or(0, |held| if held.frozen { sessions } else { 0 });
        Ok(held.map(|held| Held { state, unsaved_shells, ..held }))
    }

    fn release(&mut self) -> Result<Duration, Error> {
        let released = released(self.ask(&AdminRequest::Release)?);
        self.holding = None;
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::client::send;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    /// One sandbox that took long to stand still ended the backup of all.
    #[test]
    fn a_server_that_does_not_answer_costs_one_sandbox() {
        let data = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(data.path().join("admin.sock")).unwrap();
        let server = std::thread::spawn(move || {
            let (silent, _) = listener.accept().unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            send(&mut stream, &AdminResponse::Gone).unwrap();
            drop(silent);
            line
        });
        let client = AdminClient::connect(data.path()).unwrap().unwrap();
        let mut holds = ServerHolds::new(client);
        let error = holds.hold("slow").unwrap_err();
        assert!(matches!(error, Error::Hold(_)), "{error}");
        assert_eq!(holds.hold("next").unwrap(), None);
        assert!(
            server.join().unwrap().contains("next"),
            "the old answer is not taken for this one"
        );
        assert!(matches!(holds.hold("last"), Err(Error::Server(_))), "the server has ended");
    }
}
