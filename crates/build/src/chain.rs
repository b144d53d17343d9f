//! Digests of steps: each covers the base, all steps before it, and the content of copied files.

use crate::recipe::{Accounts, Recipe};
use sha2::{Digest, Sha256};

/// The version of what a digest covers. A change of what steps do increases it.
const VERSION: &str = "isolet-build-1";
/// Bytes of a digest in the name of a snapshot.
const NAME_BYTES: usize = 20;

/// The digest of the base and of some steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChainDigest([u8; 32]);

impl ChainDigest {
    /// The digests of the base, and of each step with all before it. `files` is the digest of the
    /// files that each step copies.
    pub(crate) fn of(recipe: &Recipe, base: &str, files: &[Option<String>]) -> Vec<Self> {
        let accounts = match &recipe.accounts {
            Accounts::OfImage => None,
            Accounts::Root(all) => Some(all),
        };
        let place = (&recipe.begin.user, &recipe.begin.cwd);
        let text = serde_json::to_vec(&(VERSION, base, accounts, place)).unwrap_or_default();
        let mut all = vec![Self(Sha256::digest(text).into())];
        for (index, step) in recipe.steps.iter().enumerate() {
            let text = serde_json::to_vec(&(&step.action, files.get(index))).unwrap_or_default();
            let hash = Sha256::new().chain_update(all[index].0).chain_update(text);
            all.push(Self(hash.finalize().into()));
        }
        all
    }

    /// The digest as part of the name of a snapshot.
    pub(crate) fn name(&self) -> String {
        hex::encode(&self.0[..NAME_BYTES])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{Action, Base, Step};
    use proptest::prelude::*;

    fn recipe(texts: &[String]) -> Recipe {
        let step = |text: &String| Step { action: Action::Workdir(text.clone()), force: false };
        let base = Base::Image("host".to_owned());
        Recipe { steps: texts.iter().map(step).collect(), ..Recipe::of(base) }
    }

    proptest! {
        #[test]
        fn equal_beginnings_have_equal_digests_and_a_change_alters_all_later_ones(
            texts in prop::collection::vec("[a-c]{0,3}", 1..8),
            changed in any::<prop::sample::Index>(),
        ) {
            let mut others = texts.clone();
            let at = changed.index(texts.len());
            others[at].push('x');
            let files = vec![None; texts.len()];
            let one = ChainDigest::of(&recipe(&texts), "b", &files);
            let other = ChainDigest::of(&recipe(&others), "b", &files);
            prop_assert_eq!(one.len(), texts.len() + 1);
            prop_assert_eq!(&one[..=at], &other[..=at]);
            prop_assert!(std::iter::zip(&one, &other).skip(at + 1).all(|(a, b)| a != b));
        }
    }

    #[test]
    fn the_base_and_the_files_count() {
        let one = recipe(&["a".to_owned()]);
        let of = |base: &str, files: Option<&str>| {
            ChainDigest::of(&one, base, &[files.map(str::to_owned)]).pop().unwrap()
        };
        assert_ne!(of("b", None), of("c", None));
        assert_ne!(of("b", None), of("b", Some("1")));
        assert_ne!(of("b", Some("2")), of("b", Some("1")));
        assert_eq!(of("b", Some("1")).name().len(), 40);
    }
}
