//! Reads owners in etcd: of new sandboxes, and to compare epochs under a registration.

use crate::ownership_driver::table::Question;
use crate::ownership_driver::{ACTIONS_AT_ONCE, OwnershipDriver, class, key};
use futures_util::{StreamExt as _, stream};
use isolet_cluster::model::{Epoch, Owner, SandboxKey};
use isolet_cluster::ownership::{Claim, Claimed, ListCursor, OwnershipError};
use isolet_cluster::protocol::{Event, Phase};
use isolet_sandbox::{LocalSandbox, SandboxClass};
use std::collections::{HashMap, HashSet};
use tracing::{info, warn};

/// Keys of one page of the node's list.
const PAGE: u16 = 1000;
/// Up to this number of owners, they are read one by one instead of in pages.
const FEW: usize = 16;
/// Why a node claims what it has and nobody owns.
const REASON: &str = "on this node, and without an owner";

impl OwnershipDriver {
    /// The registration that this node holds.
    pub(super) fn registration(&self) -> Option<Epoch> {
        self.state.borrow().registration()
    }

    /// Learns that this node owns a sandbox, if it does.
    ///
    /// # Errors
    /// Why it does not, as text for people.
    pub(super) async fn own(&self, sandbox: &LocalSandbox) -> Result<(), String> {
        // The registration is read first: if the lease ends in between, the guard refuses it.
        let registration = self.registration().ok_or("this node does not hold its lease")?;
        let key = key(sandbox).ok_or("its ids cannot become a key")?;
        let owner = self.ownership.owner_in_etcd(&key).await.map_err(|error| error.to_string())?;
        let owner = match owner {
            Some(owner) => owner,
            None if sandbox.class == SandboxClass::Store => {
                self.claim(sandbox, key).await.map_err(|error| error.to_string())?
            }
            None => return Err("nobody owns it yet".to_owned()),
        };
        if owner.node != self.here {
            return Err(format!("the node {} owns it", owner.node));
        }
        self.table().own(sandbox, owner.epoch, registration);
        Ok(())
    }

    async fn claim(
        &self,
        sandbox: &LocalSandbox,
        key: SandboxKey,
    ) -> Result<Owner, OwnershipError> {
        let class = class(sandbox);
        let region = self.region.clone();
        let reason = REASON.to_owned();
        let claim = Claim { sandbox: key, class, region, reason };
        match self.ownership.claim(&claim).await? {
            Claimed::Won(owner) | Claimed::Owned(owner) => Ok(owner),
        }
    }

    /// Answers all questions that are due. One that cannot be answered now is asked again at the next
    /// tick.
    pub(super) async fn compare_all(&self) {
        let questions = self.table().begin_questions();
        if questions.is_empty() {
            return;
        }
        let owned = if questions.len() <= FEW {
            HashSet::new()
        } else {
            self.still_owned(&questions).await.unwrap_or_else(|error| {
                warn!(%error, "cannot compare the ownership of sandboxes; it is tried again");
                HashSet::new()
            })
        };
        let owned = &owned;
        let answer = |question: Question| async move {
            let is_owned = owned.contains(&question.sandbox.name);
            if is_owned && self.registration() == Some(question.registration) {
                self.answered(&question, Some(question.epoch));
            } else {
                self.compare(&question).await;
            }
        };
        stream::iter(questions).for_each_concurrent(ACTIONS_AT_ONCE, answer).await;
    }

    /// The names of those sandboxes that this node owns at the epoch of the question.
    async fn still_owned(&self, questions: &[Question]) -> Result<HashSet<String>, OwnershipError> {
        let asked: HashMap<SandboxKey, &Question> = questions
            .iter()
            .filter_map(|question| Some((key(&question.sandbox)?, question)))
            .collect();
        let mut owned = HashSet::new();
        let mut after: Option<ListCursor> = None;
        loop {
            let page = self.ownership.held(&self.here, after.as_ref(), PAGE).await?;
            for held in page.sandboxes {
                if let Some(question) = asked.get(&held.sandbox)
                    && held.epoch == question.epoch
                {
                    owned.insert(question.sandbox.name.clone());
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(owned),
            }
        }
    }

    async fn compare(&self, question: &Question) {
        let name = &question.sandbox.name;
        let Some(key) = key(&question.sandbox) else { return self.table().ended(name, None) };
        // Another lease: the question is outdated, and will be asked again.
        if self.registration() != Some(question.registration) {
            return self.table().ended(name, None);
        }
        let owner = match self.ownership.owner_in_etcd(&key).await {
            Ok(owner) => owner,
            Err(error) => {
                warn!(sandbox = %key, %error, "cannot compare its ownership; it is tried again");
                return self.table().ended(name, None);
            }
        };
        // Epochs repeat in an etcd that was restored from a backup.
        let is_same = |owner: &Owner| owner.epoch == question.epoch && owner.node == self.here;
        if !owner.as_ref().is_some_and(is_same) && self.may_own_anew(question, owner.as_ref()) {
            return self.own_anew(question, owner, key).await;
        }
        self.answered(question, owner.filter(is_same).map(|owner| owner.epoch));
    }

    fn answered(&self, question: &Question, owner: Option<Epoch>) {
        let Question { sandbox, epoch, registration } = question;
        let compared = Event::Compared { epoch: *epoch, registration: *registration, owner };
        self.table().ended(&sandbox.name, Some(compared));
    }

    /// Whether nobody else can have owned the sandbox, although the epoch is another one: the records
    /// in etcd were lost. Of the class `node`, only an operator who declares its node dead allows a
    /// takeover, and then it would be suspended.
    fn may_own_anew(&self, question: &Question, owner: Option<&Owner>) -> bool {
        let is_own = owner.is_none_or(|owner| owner.node == self.here);
        let phase = self.table().phase(&question.sandbox.name);
        question.sandbox.class == SandboxClass::Node
            && is_own
            && matches!(phase, Some(Phase::Running { .. } | Phase::Claimed { .. }))
    }

    async fn own_anew(&self, question: &Question, owner: Option<Owner>, key: SandboxKey) {
        let name = &question.sandbox.name;
        let claimed = match owner {
            Some(owner) => Ok(owner),
            None => self.claim(&question.sandbox, key).await,
        };
        match claimed {
            Ok(owner) if owner.node == self.here => {
                info!(sandbox = %question.sandbox, epoch = %owner.epoch, "owned again: nobody else owned it");
                let mut table = self.table();
                table.ended(name, None);
                table.own_anew(name, owner.epoch, question.registration);
            }
            Ok(owner) => self.answered(question, Some(owner.epoch)),
            Err(error) => {
                warn!(sandbox = %question.sandbox, %error, "cannot own it again; it is tried again");
                self.table().ended(name, None);
            }
        }
    }
}
