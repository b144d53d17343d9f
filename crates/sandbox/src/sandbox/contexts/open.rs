//! Creates code contexts: checks the request and starts an interpreter.

use crate::model::agent_error::AgentError;
use crate::model::clock::now_ms;
use crate::model::error::Error;
use crate::model::ids::ContextId;
use crate::model::info::IdempotencyKey;
use crate::model::input::{WorkingDirectory, check_merged_size};
use crate::sandbox::Sandbox;
use crate::sandbox::contexts::{
    ContextInfo, ContextSpec, KERNEL_MEMORY_MIB_MIN, Kernel, Label, OPEN_WAIT,
    SPARE_MEMORY_MIB_MIN, TIMEOUT_MS, info,
};
use isolet_wire::context::{self, Language, TIMEOUT_MS_MAX};
use isolet_wire::response::RefusalReason;

impl Sandbox {
    /// Creates a context and returns when its interpreter is ready, with `true` if the same
    /// idempotency key had created it before.
    ///
    /// # Errors
    /// [`Error::Refused`] with `Exists`, `Unsupported` if the image has no interpreter, `BadCwd` or
    /// `TooMany`; [`Error::OtherBody`], [`Error::BadField`], [`Error::Link`].
    pub async fn context_create(
        &self,
        spec: ContextSpec,
        once: Option<IdempotencyKey>,
    ) -> Result<(ContextInfo, bool), Error> {
        let Some(once) = once else { return Ok((self.context_open(spec, false).await?, false)) };
        let id = spec.id.clone().unwrap_or_else(|| ContextId::of_key(&once.key));
        let spec = ContextSpec { id: Some(id), ..spec };
        if let Some(found) = self.made_with(&once).await? {
            return Ok((found, true));
        }
        match self.open_with(spec, Some(&once), false).await {
            // Two equal requests arrived at once, and the other one has created the context.
            Err(Error::Refused { reason: RefusalReason::Exists, message }) => {
                let found = self.made_with(&once).await?;
                let taken = Error::Refused { reason: RefusalReason::Exists, message };
                found.map(|found| (found, true)).ok_or(taken)
            }
            opened => Ok((opened?, false)),
        }
    }

    /// The same without an idempotency key. With `reuse`, an existing context of this id is
    /// returned.
    ///
    /// # Errors
    /// See [`Self::context_create`].
    pub async fn context_open(&self, spec: ContextSpec, reuse: bool) -> Result<ContextInfo, Error> {
        self.open_with(spec, None, reuse).await
    }

    /// The context that was created with this key.
    async fn made_with(&self, once: &IdempotencyKey) -> Result<Option<ContextInfo>, Error> {
        let all = self.contexts().await?;
        let of = |info: &ContextInfo| info.once.as_ref().is_some_and(|(key, _)| *key == once.key);
        match all.into_iter().find(of) {
            Some(ContextInfo { once: Some((_, body)), .. }) if body != once.body => {
                Err(Error::OtherBody)
            }
            found => Ok(found),
        }
    }

    /// The name of the Jupyter kernel to use. A Python context uses one if the image has it.
    fn kernel(&self, language: Language, spec: Kernel) -> Option<String> {
        let room = self.memory_for(KERNEL_MEMORY_MIB_MIN);
        match (spec, language) {
            (Kernel::Named(name), _) => Some(name),
            (Kernel::Usual, Language::Jupyter) => Some("python3".to_owned()),
            (Kernel::Usual, Language::Python) => room.then(|| "python3".to_owned()),
            _ => None,
        }
    }

    /// Whether the sandbox has at least this memory limit, in MiB.
    fn memory_for(&self, least_mib: u64) -> bool {
        self.entry.view.borrow().record.body.limits.memory_mib >= least_mib
    }

    async fn open_with(
        &self,
        spec: ContextSpec,
        once: Option<&IdempotencyKey>,
        reuse: bool,
    ) -> Result<ContextInfo, Error> {
        // Held until the context is open.
        let _opening;
        let (session, scope) = match &spec.session {
            Some(id) => {
                let session = self.session_of(id).await?;
                _opening = self.entry.sessions.opening(id)?;
                (Some(session), self.scope(id).await?)
            }
            None => (None, None),
        };
        let mut env = self.env(session.as_ref());
        spec.env.apply(&mut env);
        env.remove(context::KERNEL);
        env.remove(context::SPARE);
        env.remove(context::STRUCTURED);
        check_merged_size(&env)?;
        let own = session.map(|session| session.cwd);
        let cwd = spec.cwd.map(WorkingDirectory::into_inner);
        let cwd = cwd.or(own).unwrap_or_else(|| self.start_dir());
        let timeout_ms = match spec.timeout_ms.unwrap_or(TIMEOUT_MS) {
            0 => TIMEOUT_MS_MAX,
            ms => ms.min(TIMEOUT_MS_MAX),
        };
        let kernel = self.kernel(spec.language, spec.kernel);
        if let Some(kernel) = &kernel {
            env.insert(context::KERNEL.to_owned(), kernel.clone());
            if spec.structured {
                env.insert(context::STRUCTURED.to_owned(), String::new());
            }
            if self.memory_for(SPARE_MEMORY_MIB_MIN) {
                env.insert(context::SPARE.to_owned(), String::new());
            }
        }
        let label = Label {
            language: kernel.as_ref().map(|_| spec.language),
            kernel,
            session: spec.session,
            cwd: cwd.clone(),
            timeout_ms,
            created_at_ms: now_ms(),
            once: once.map(|once| (once.key.clone(), once.body)),
        };
        let label = serde_json::to_vec(&label).map_err(|error| Error::Fault(error.to_string()))?;
        let id = spec.id.unwrap_or_else(ContextId::random);
        if let Ok(found) = self.context(&id).await {
            if reuse {
                return Ok(found);
            }
            let message = format!("context {id} exists");
            return Err(Error::Refused { reason: RefusalReason::Exists, message });
        }
        let context = id.into();
        let language = spec.language;
        let open = context::OpenContext { context, language, cwd, env, timeout_ms, label, reuse };
        let answer =
            self.ask_context(scope.as_deref(), context::ContextRequest::Open(open), OPEN_WAIT);
        match answer.await? {
            context::ContextResponse::State(status) => info(status),
            _ => Err(AgentError::Turn("unexpected answer to a new context").into()),
        }
    }
}
