//! What others do, and what was ours and is not any more: found, put right and told.

use super::EventLoop;
use crate::veth::netlink::rtnetlink::News;
use crate::veth::policy::HOST_END;
use isolet_wire::links::LinkTell;
use isolet_wire::network::{EdgeOrder, Guard};

impl EventLoop {
    pub(super) fn repaired(&mut self, what: String) {
        self.news(LinkTell::Repaired { what });
    }

    pub(super) fn gone(&mut self, (id, name): (u32, String)) {
        self.news(LinkTell::Gone { name, id });
    }

    pub(super) fn link_news(&mut self) {
        for news in self.keeper.base.link_news.heard() {
            match news {
                News::Gone(index) => {
                    if let Some(gone) = self.keeper.forget(index) {
                        self.gone(gone);
                    }
                }
                News::Lost => self.look_at_links(),
                News::Link | News::Address => {}
            }
        }
    }

    pub(super) fn look_at_links(&mut self) {
        for gone in self.keeper.look() {
            self.gone(gone);
        }
    }

    pub(super) fn host_news(&mut self) {
        let news = self.keeper.base.host_news.heard();
        if news.iter().any(|news| matches!(news, News::Address | News::Lost)) {
            self.look_at_addresses();
        }
        if news.iter().any(|news| *news != News::Address) {
            self.look_at_way();
        }
    }

    pub(super) fn look_at_addresses(&mut self) {
        let Ok(host) = self.keeper.base.addresses() else { return };
        if host == self.keeper.guard.host {
            return;
        }
        let guard = Guard { host, ..self.keeper.guard.clone() };
        if let Err(why) = self.keeper.base.between(&crate::veth::nft_ruleset::guard(&guard)) {
            return self.repaired(format!("the host's new addresses are not closed: {why}"));
        }
        self.keeper.guard = guard.clone();
        let resolvers = self.resolvers.clone();
        self.keeper.tell_edge(&EdgeOrder::Guard { guard, resolvers });
    }

    pub(super) fn look_at_way(&mut self) {
        match self.keeper.base.look_at_way() {
            Ok(None) => {}
            Ok(Some(what)) => self.repaired(what),
            Err(why) => self.repaired(format!("{HOST_END} is not as it should be: {why}")),
        }
        // What came of our own doing.
        let news = self.keeper.base.host_news.heard();
        if news.contains(&News::Address) {
            self.look_at_addresses();
        }
    }

    pub(super) fn look_at_tables(&mut self) {
        let (kept, guard) = (self.keeper.elements(), self.keeper.guard.clone());
        match self.keeper.base.look_at_tables(&kept, &guard) {
            Ok(None) => {}
            Ok(Some(what)) => self.repaired(what),
            Err(why) => self.repaired(format!("the packet filter is not as it should be: {why}")),
        }
    }
}
