//! Waiting for the next event.

use super::{EventLoop, RECONCILE_INTERVAL};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The sources that can be read.
#[derive(Default)]
pub(super) struct Ready {
    pub(super) listener: bool,
    pub(super) client: bool,
    pub(super) nflog: bool,
    pub(super) interfaces: bool,
    pub(super) host: bool,
    pub(super) tables: bool,
    pub(super) proxy: bool,
    pub(super) candidate: bool,
}

/// The descriptors of one call of `poll`.
struct PollSet<'a>(Vec<PollFd<'a>>);

impl<'a> PollSet<'a> {
    /// Adds a descriptor; returns its index.
    fn add(&mut self, fd: BorrowedFd<'a>) -> usize {
        self.0.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        self.0.len() - 1
    }

    fn is_ready(&self, index: usize) -> bool {
        !self.0[index].revents().is_empty()
    }

    fn is_some_ready(&self, index: Option<usize>) -> bool {
        index.is_some_and(|index| self.is_ready(index))
    }
}

impl EventLoop {
    /// Waits until a source can be read or timed work is due.
    pub(super) fn wait(&self) -> Ready {
        let gateway = &self.manager.gateway;
        let [host_table, gateway_table] = gateway.table_events();
        let mut fds = PollSet(Vec::new());
        let listener = fds.add(self.listener.as_fd());
        let nflog = fds.add(gateway.nflog.as_fd());
        let interfaces = fds.add(gateway.interface_events.as_fd());
        let host = fds.add(gateway.host_events.as_fd());
        let host_table = fds.add(host_table.as_fd());
        let gateway_table = fds.add(gateway_table.as_fd());
        let client = self.client.as_ref().map(|client| fds.add(client.as_fd()));
        let proxy = self.manager.proxy.as_ref().map(|proxy| fds.add(proxy.as_fd()));
        let candidate = self.candidate.as_ref().map(|candidate| fds.add(candidate.as_fd()));
        let timeout = Timespec::try_from(self.next_due()).ok();
        if poll(&mut fds.0, timeout.as_ref()).is_err() {
            return Ready::default();
        }
        Ready {
            listener: fds.is_ready(listener),
            client: fds.is_some_ready(client),
            nflog: fds.is_ready(nflog),
            interfaces: fds.is_ready(interfaces),
            host: fds.is_ready(host),
            tables: fds.is_ready(host_table) || fds.is_ready(gateway_table),
            proxy: fds.is_some_ready(proxy),
            candidate: fds.is_some_ready(candidate),
        }
    }

    /// The time until the next timed work is due.
    fn next_due(&self) -> Duration {
        let now = Instant::now();
        let times =
            [self.prepare_at, self.remove_stale_at, self.start_proxy_at, Some(self.reconcile_at)];
        let due_in = times.into_iter().flatten().map(|at| at.saturating_duration_since(now));
        due_in.chain(self.manager.denials_due_in()).min().unwrap_or(RECONCILE_INTERVAL)
    }
}
