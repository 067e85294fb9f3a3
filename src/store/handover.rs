//! What passes from a caller to the process it starts, once: the environment and the keys it needs.
//!
//! A file of mode 0600 that the reader unlinks before anything else. Keys never enter an environment or an argv.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files::{self, Durability, FileError};
use crate::model::language_server::LanguageServer;
use crate::model::provider::ProviderKind;

use super::settings::Sandbox;

/// Larger than any environment the kernel lets a process have.
const LIMIT: u64 = 8 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum HandoverError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("`{path}` is not a handover")]
    Damaged { path: PathBuf, source: serde_json::Error },
}

/// How to reach one provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Access {
    pub(crate) provider: String,
    pub(crate) kind: ProviderKind,
    #[serde(default)]
    pub(crate) base_url: Option<String>,
    #[serde(default)]
    pub(crate) key: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handover {
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) access: Vec<Access>,
    /// Milliseconds the offline explorer waits between steps, so that people can watch.
    #[serde(default)]
    pub(crate) pace_ms: u64,
    /// Where `web_search` asks, if the user named a place.
    #[serde(default)]
    pub(crate) web_search: Option<String>,
    /// Language servers that the user named.
    #[serde(default)]
    pub(crate) lsp: Vec<LanguageServer>,
    /// Handed over, not read again: the settings may be others by then, or another's.
    #[serde(default)]
    pub(crate) sandbox: Sandbox,
}

impl Handover {
    /// Writes it where only this user can read it.
    pub(crate) fn write(&self, path: &Path) -> Result<(), HandoverError> {
        let json = serde_json::to_vec(self).expect("a handover is plain data");
        Ok(files::write(path, &json, Durability::Renamed)?)
    }

    /// Reads it and removes it.
    pub(crate) fn take(path: &Path) -> Result<Self, HandoverError> {
        let text = files::read(path, LIMIT)?;
        // Removed before it is used: a reader that dies later must not leave a key behind.
        std::fs::remove_file(path).map_err(|source| FileError::Write { path: path.to_owned(), source })?;
        serde_json::from_str(&text).map_err(|source| HandoverError::Damaged { path: path.to_owned(), source })
    }

    /// The same for one child: only the provider it speaks to.
    #[must_use]
    pub(crate) fn only(&self, provider: &str) -> Self {
        let access = self.access.iter().filter(|access| access.provider == provider).cloned().collect();
        Self { access, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_handover_is_private_and_taken_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("environment");
        let handover = Handover { environment: vec![("A".into(), "b\nc=d".into())], ..Handover::default() };
        handover.write(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Handover::take(&path).unwrap(), handover);
        assert!(Handover::take(&path).is_err());
    }

    #[test]
    fn a_child_gets_its_own_key_only() {
        let access = |name: &str| Access {
            provider: name.into(),
            kind: ProviderKind::OpenAi,
            base_url: None,
            key: Some("k".into()),
        };
        let access_to = vec![access("anthropic"), access("openai")];
        let handover = Handover { access: access_to, sandbox: Sandbox::Off, ..Handover::default() };
        assert_eq!(handover.only("openai").access, [access("openai")]);
        assert_eq!(handover.only("openai").sandbox, Sandbox::Off);
        assert_eq!(handover.only("script").access, []);
    }
}
