//! What the last sleep of a sandbox ended. The first answer after the sandbox woke reports it.

use isolet_sandbox::{LossReason, Lost, LostState, Sandbox};
use serde::Serialize;
use utoipa::ToSchema;

/// A session whose shell state was not restored completely.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LostState)]
pub(crate) struct LostStateView {
    /// The id of the session.
    session: String,
    /// Why: `crash` (changes since the last save are lost), `too_large`, `no_answer`, `not_kept` or
    /// `not_restored`.
    #[schema(value_type = String)]
    #[serde(rename = "why")]
    reason: LossReason,
    /// When the restored state was saved, in milliseconds since 1970. `null` if nothing was
    /// restored.
    #[schema(required = true)]
    saved_at_ms: Option<i64>,
}

/// The fields of an answer about what a sleep ended: absent in all answers but the first.
#[derive(Debug, Default)]
pub(crate) struct LostFields {
    /// `shells`, `processes`, `files`, `shell_state`, `terminals`, `contexts`, `connections`
    /// and `credentials`.
    pub(crate) lost: Option<Vec<&'static str>>,
    /// Absent unless `lost` names `shell_state`.
    pub(crate) lost_state: Option<Vec<LostStateView>>,
}

impl LostFields {
    /// Takes what the sandbox has to report. Only the first caller gets it.
    pub(crate) fn take(sandbox: &Sandbox) -> Self {
        sandbox.lost().map_or_else(Self::default, |lost| Self::of(&lost))
    }

    pub(crate) fn of(lost: &[Lost]) -> Self {
        let mut words: Vec<&str> = lost.iter().map(Lost::word).collect();
        words.dedup();
        let states: Vec<LostStateView> =
            lost.iter().filter_map(Lost::state).map(LostStateView::from).collect();
        Self { lost: Some(words), lost_state: Some(states).filter(|states| !states.is_empty()) }
    }
}

impl From<&LostState> for LostStateView {
    fn from(state: &LostState) -> Self {
        let LostState { session, reason, saved_at_ms } = state;
        Self { session: session.to_string(), reason: *reason, saved_at_ms: *saved_at_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_state_keeps_its_bytes() {
        let state = |session: &str, saved_at_ms| {
            let session = session.parse().unwrap();
            Lost::ShellState(LostState { session, reason: LossReason::TooLarge, saved_at_ms })
        };
        let lost = [Lost::Shells, state("a", Some(5)), state("b", None)];
        let fields = LostFields::of(&lost);
        assert_eq!(serde_json::to_string(&fields.lost).unwrap(), r#"["shells","shell_state"]"#);
        assert_eq!(
            serde_json::to_string(&fields.lost_state).unwrap(),
            r#"[{"session":"a","why":"too_large","saved_at_ms":5},{"session":"b","why":"too_large","saved_at_ms":null}]"#
        );
        assert!(LostFields::of(&[Lost::Files]).lost_state.is_none());
    }
}
