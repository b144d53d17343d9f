//! E2B's names of languages, and the contexts that run them.

use crate::foundation::error::ApiError;
use isolet_sandbox::contexts::{ContextInfo, ContextSpec, Kernel};
use isolet_sandbox::{ContextId, EnvironmentChange, WorkingDirectory};
use isolet_wire::context::Language;
use std::collections::BTreeMap;

/// The home directory, in which contexts start.
const HOME: &str = "/home/user";
/// Precedes the language in the id of the context that runs code which names no context.
const DEFAULT: &str = "e2b-";
/// The kernel of IPython, which the package `ipykernel` brings.
const PYTHON_KERNEL: &str = "python3";
/// The kernel of R's package `IRkernel`.
const R_KERNEL: &str = "ir";
/// The longest name of a language.
const NAME_BYTES_MAX: usize = 100;

/// The language of a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContextLanguage(String);

impl ContextLanguage {
    /// The language that E2B uses by default.
    pub(super) fn python() -> Self {
        Self("python".to_owned())
    }

    pub(super) fn javascript() -> Self {
        Self("javascript".to_owned())
    }

    /// Parses a name. Others than those known here are names of Jupyter kernels.
    ///
    /// # Errors
    /// 400 for a name that no kernel can have.
    pub(super) fn parse(name: &str) -> Result<Self, ApiError> {
        let name = name.trim().to_ascii_lowercase();
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.len() > NAME_BYTES_MAX || !name.bytes().all(letter) {
            let reason = "at most 100 letters, digits, `.`, `_` and `-`";
            return Err(ApiError::bad_field("language", reason));
        }
        Ok(Self(match name.as_str() {
            "" => "python".to_owned(),
            "js" => "javascript".to_owned(),
            "ts" => "typescript".to_owned(),
            "sh" => "bash".to_owned(),
            _ => name,
        }))
    }

    /// The language of an existing context.
    pub(super) fn of(info: &ContextInfo) -> Self {
        let word = match info.language {
            Language::Python => "python",
            Language::JavaScript => "javascript",
            Language::TypeScript => "typescript",
            Language::Bash => "bash",
            Language::Jupyter => match info.kernel.as_deref().unwrap_or_default() {
                PYTHON_KERNEL => "python",
                R_KERNEL => "r",
                other => other,
            },
        };
        Self(word.to_owned())
    }

    pub(super) fn into_name(self) -> String {
        self.0
    }

    /// The context that runs code of this language which names no context.
    ///
    /// # Errors
    /// 400 for a name that is not part of an id.
    pub(super) fn default_context(&self) -> Result<ContextId, ApiError> {
        let id = ContextId::parse(&format!("{DEFAULT}{}", self.0));
        id.map_err(crate::foundation::input::bad_id)
    }

    /// A new context in the home directory, without a timeout: clients have their own.
    ///
    /// # Errors
    /// 400 for a malformed directory.
    pub(super) fn spec(
        &self,
        id: Option<ContextId>,
        cwd: Option<&str>,
    ) -> Result<ContextSpec, ApiError> {
        let (language, kernel) = match self.0.as_str() {
            "python" => (Language::Jupyter, Kernel::Named(PYTHON_KERNEL.to_owned())),
            "javascript" => (Language::JavaScript, Kernel::Usual),
            "typescript" => (Language::TypeScript, Kernel::Usual),
            "bash" => (Language::Bash, Kernel::Usual),
            "r" => (Language::Jupyter, Kernel::Named(R_KERNEL.to_owned())),
            other => (Language::Jupyter, Kernel::Named(other.to_owned())),
        };
        let own = [("HOME", HOME), ("USER", "user"), ("LOGNAME", "user")];
        let env: BTreeMap<_, _> =
            own.map(|(name, value)| (name.to_owned(), Some(value.to_owned()))).into();
        Ok(ContextSpec {
            id,
            language,
            kernel,
            session: None,
            cwd: Some(WorkingDirectory::parse(cwd.unwrap_or(HOME).to_owned())?),
            env: EnvironmentChange::parse(env)?,
            timeout_ms: Some(0),
            structured: true,
        })
    }
}

/// Whether a context is the default one of its language.
pub(super) fn is_default(id: &ContextId) -> bool {
    id.as_str().starts_with(DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_languages_are_normalised() {
        let parse = |name| ContextLanguage::parse(name).map(ContextLanguage::into_name).ok();
        for (name, expected) in [
            ("", "python"),
            (" Python ", "python"),
            ("js", "javascript"),
            ("ts", "typescript"),
            ("r", "r"),
            ("deno", "deno"),
        ] {
            assert_eq!(parse(name).as_deref(), Some(expected), "{name}");
        }
        for bad in ["c++", "a/b", "a\0", &"x".repeat(101)] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        let spec = ContextLanguage::parse("r").unwrap().spec(None, None).unwrap();
        assert_eq!(spec.kernel, Kernel::Named("ir".to_owned()));
    }
}
