//! Detects changes that another program made to a running sandbox from outside.

use crate::lifecycle::driver::Driver;
use crate::model::blocking::blocking;
use crate::model::state::State;

impl Driver {
    /// Ends a sandbox whose cgroups are gone, because it no longer has any limits. The record says
    /// why.
    pub(crate) async fn check(&mut self) {
        if self.record.state != State::Running {
            return;
        }
        let handle = self.handle();
        if let Ok(Some(group)) = blocking(move || handle.open().missing_cgroup()).await {
            let cause = format!("its control group {} was removed by another", group.display());
            self.fail(&cause).await;
        }
    }
}
