//! The webhooks of the fleet, as those of this server are changed by requests.

use crate::node::Node;
use crate::replication::{PutRecord, ReplacedRecord};
use isolet_webhook::{FleetFuture, FleetRecords, PutOutcome, ReplaceOutcome};
use tokio::sync::watch;

impl FleetRecords for Node {
    fn put<'a>(
        &'a self,
        tenant: &'a str,
        id: &'a str,
        body: &'a str,
    ) -> FleetFuture<'a, Result<PutOutcome, String>> {
        Box::pin(async move {
            match self.replication.put_webhook(tenant, id, body).await {
                Ok(PutRecord::Created | PutRecord::Replaced) => Ok(PutOutcome::Written),
                Ok(PutRecord::TooMany { max }) => Ok(PutOutcome::TooMany { max }),
                Err(error) => Err(error.to_string()),
            }
        })
    }

    fn replace<'a>(
        &'a self,
        tenant: &'a str,
        id: &'a str,
        from: &'a str,
        body: &'a str,
    ) -> FleetFuture<'a, Result<ReplaceOutcome, String>> {
        Box::pin(async move {
            match self.replication.replace_webhook(tenant, id, from, body).await {
                Ok(ReplacedRecord::Replaced) => Ok(ReplaceOutcome::Written),
                Ok(ReplacedRecord::Differs) => Ok(ReplaceOutcome::Differs),
                Ok(ReplacedRecord::Missing) => Ok(ReplaceOutcome::Missing),
                Err(error) => Err(error.to_string()),
            }
        })
    }

    fn remove<'a>(&'a self, tenant: &'a str, id: &'a str) -> FleetFuture<'a, Result<bool, String>> {
        Box::pin(async move {
            let removed = self.replication.remove_webhook(tenant, id).await;
            removed.map_err(|error| error.to_string())
        })
    }

    fn changed(&self) -> watch::Receiver<i64> {
        self.replication.webhooks_changed()
    }
}
