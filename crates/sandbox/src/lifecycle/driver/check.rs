//! Checks what other programs of the host may have done to a running sandbox.

use crate::{
    lifecycle::driver::Driver,
    model::{blocking::blocking, state::State},
};

impl Driver {
    /// One whose control groups are gone has no limits any more: it is ended, and says why.
    pub(crate) async fn check(&mut self) {
        if self.record.state != State::Running {
            return;
        }
        let cage = self.cage();
        if let Ok(Some(group)) = blocking(move || cage.open().missing_cgroup()).await {
            let cause = format!("its control group {} was removed by another", group.display());
            self.fail(&cause).await;
        }
    }
}
