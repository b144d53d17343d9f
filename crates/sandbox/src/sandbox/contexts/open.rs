//! Creates a context.

use crate::{
    model::{
        agent_error::AgentError, clock::now_ms, error::Error, ids::ContextId, info::IdempotencyKey,
        validation::check_env,
    },
    sandbox::{
        Sandbox,
        contexts::{
            ContextSpec, Info, KERNEL_MEMORY_MIB_MIN, Kernel, Label, OPEN_WAIT,
            SPARE_MEMORY_MIB_MIN, TIMEOUT_MS, info,
        },
    },
};
use isolet_wire::{
    context::{self, Language, TIMEOUT_MS_MAX},
    response::RefusalReason,
};

impl Sandbox {
    /// Makes a context; answers when its interpreter is ready. `true` beside it: the same
    /// idempotency key had made it before.
    ///
    /// # Errors
    /// [`Error::Refused`]: `Exists`, `Unable` where the image has no interpreter, `BadCwd`,
    /// `TooMany`; [`Error::OtherBody`], [`Error::BadField`], [`Error::Link`].
    pub async fn context_create(
        &self,
        wish: ContextSpec,
        once: Option<IdempotencyKey>,
    ) -> Result<(Info, bool), Error> {
        let Some(once) = once else { return Ok((self.context_open(wish, false).await?, false)) };
        let id = wish.id.clone().unwrap_or_else(|| ContextId::of_key(&once.key));
        let wish = ContextSpec { id: Some(id), ..wish };
        if let Some(found) = self.made_with(&once).await? {
            return Ok((found, true));
        }
        match self.open_with(wish, Some(&once), false).await {
            // The same request has come twice at once: the other one has made it.
            Err(Error::Refused { why: RefusalReason::Exists, message }) => {
                let found = self.made_with(&once).await?;
                let taken = Error::Refused { why: RefusalReason::Exists, message };
                found.map(|found| (found, true)).ok_or(taken)
            }
            opened => Ok((opened?, false)),
        }
    }

    /// As [`Self::context_create`] without a key. `reuse`: one of this id that is there will do.
    ///
    /// # Errors
    /// As there.
    pub async fn context_open(&self, wish: ContextSpec, reuse: bool) -> Result<Info, Error> {
        self.open_with(wish, None, reuse).await
    }

    /// The context that was made with this key.
    async fn made_with(&self, once: &IdempotencyKey) -> Result<Option<Info>, Error> {
        let all = self.contexts().await?;
        let of = |info: &Info| info.once.as_ref().is_some_and(|(key, _)| *key == once.key);
        match all.into_iter().find(of) {
            Some(Info { once: Some((_, body)), .. }) if body != once.body => Err(Error::OtherBody),
            found => Ok(found),
        }
    }

    /// The name of the kernel that is to run it; in a context of Python, if the image has it.
    fn kernel(&self, language: Language, wish: Kernel) -> Option<String> {
        let room = self.memory_for(KERNEL_MEMORY_MIB_MIN);
        match (wish, language) {
            (Kernel::Named(name), _) => Some(name),
            (Kernel::Usual, Language::Jupyter) => Some("python3".to_owned()),
            (Kernel::Usual, Language::Python) => room.then(|| "python3".to_owned()),
            _ => None,
        }
    }

    /// Whether the sandbox may have so much memory, in MiB.
    fn memory_for(&self, least_mib: u64) -> bool {
        self.entry.view.borrow().record.body.limits.memory_mib >= least_mib
    }

    async fn open_with(
        &self,
        wish: ContextSpec,
        once: Option<&IdempotencyKey>,
        reuse: bool,
    ) -> Result<Info, Error> {
        // Held until the context is open.
        let _opening;
        let (session, scope) = match &wish.session {
            Some(id) => {
                let session = self.session_of(id).await?;
                _opening = self.entry.sessions.opening(id)?;
                (Some(session), self.scope(id).await?)
            }
            None => (None, None),
        };
        let mut env = self.env(session.as_ref());
        for (name, value) in wish.env {
            match value {
                Some(value) => env.insert(name, value),
                None => env.remove(&name),
            };
        }
        env.remove(context::KERNEL);
        env.remove(context::SPARE);
        check_env(env.iter().map(|(name, value)| (name, value.as_str())))?;
        let own = session.map(|session| session.cwd);
        let cwd = wish.cwd.or(own).unwrap_or_else(|| self.start_dir());
        let timeout_ms = match wish.timeout_ms.unwrap_or(TIMEOUT_MS) {
            0 => TIMEOUT_MS_MAX,
            ms => ms.min(TIMEOUT_MS_MAX),
        };
        let kernel = self.kernel(wish.language, wish.kernel);
        if let Some(kernel) = &kernel {
            env.insert(context::KERNEL.to_owned(), kernel.clone());
            if self.memory_for(SPARE_MEMORY_MIB_MIN) {
                env.insert(context::SPARE.to_owned(), String::new());
            }
        }
        let label = Label {
            language: kernel.as_ref().map(|_| wish.language),
            kernel,
            session: wish.session,
            cwd: cwd.clone(),
            timeout_ms,
            created_at_ms: now_ms(),
            once: once.map(|once| (once.key.clone(), once.body)),
        };
        let label = serde_json::to_vec(&label).map_err(|error| Error::Fault(error.to_string()))?;
        let id = wish.id.unwrap_or_else(ContextId::random);
        if let Ok(found) = self.context(&id).await {
            if reuse {
                return Ok(found);
            }
            let message = format!("context {id} exists");
            return Err(Error::Refused { why: RefusalReason::Exists, message });
        }
        let context = id.into();
        let language = wish.language;
        let open = context::Open { context, language, cwd, env, timeout_ms, label, reuse };
        let answer =
            self.ask_context(scope.as_deref(), context::ContextRequest::Open(open), OPEN_WAIT);
        match answer.await? {
            context::ContextResponse::Is(told) => info(told),
            _ => Err(AgentError::Turn("another answer to a new context").into()),
        }
    }
}
