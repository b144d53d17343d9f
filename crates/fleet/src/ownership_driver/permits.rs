//! Lets sandboxes of the class `store` start: this node must own them, under the lease that it holds.

use crate::ownership_driver::OwnershipDriver;
use isolet_cluster::model::Epoch;
use isolet_cluster::protocol::Phase;
use isolet_sandbox::ownership::PermitFuture;
use isolet_sandbox::{LocalSandbox, StartPermits};
use std::sync::Arc;
use std::time::Duration;

/// How often is looked whether the guard has admitted a sandbox.
const LOOKS: u32 = 100;
/// The pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// The driver, as the service asks it.
pub(super) struct Permits(pub(super) Arc<OwnershipDriver>);

impl StartPermits for Permits {
    fn permit<'a>(&'a self, sandbox: &'a LocalSandbox) -> PermitFuture<'a> {
        let driver = Arc::clone(&self.0);
        let sandbox = sandbox.clone();
        // A task of its own: what it has begun must be finished if the caller is dropped.
        let asked = tokio::spawn(async move { driver.permit(&sandbox).await });
        Box::pin(async move { asked.await.unwrap_or_else(|error| Err(error.to_string())) })
    }
}

impl OwnershipDriver {
    async fn permit(&self, sandbox: &LocalSandbox) -> Result<Epoch, String> {
        let held = self.registration().ok_or("this node does not hold its lease")?;
        let name = &sandbox.name;
        if matches!(self.phase(name), None | Some(Phase::Absent)) {
            self.own(sandbox).await?;
        }
        // The guard learns of it, and the view becomes `Running`: here, or in the task that follows
        // all sandboxes, if that has seen it first.
        for _ in 0..LOOKS {
            self.drain(name).await;
            if !matches!(self.phase(name), Some(Phase::Claimed { .. })) {
                break;
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        match self.phase(name) {
            Some(Phase::Running { registration, .. }) if registration == held => Ok(registration),
            Some(Phase::Superseded { .. }) => Err("another node has taken it over".to_owned()),
            Some(Phase::Stopping { .. } | Phase::Released { .. }) => {
                Err("it is being deleted".to_owned())
            }
            _ => Err("this node has not compared its ownership yet".to_owned()),
        }
    }

    fn phase(&self, name: &str) -> Option<Phase> {
        self.table().phase(name)
    }
}
