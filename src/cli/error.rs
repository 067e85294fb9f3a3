//! Errors at the edge: what happened, why, what helps, and the exit code.

use super::exit;
use crate::command::CommandError;
use crate::files::FileError;
use crate::machine::prompts::PromptError;
use crate::provider::ProviderError;
use crate::store::attempt::AttemptError;
use crate::store::catalog::CatalogError;
use crate::store::handover::HandoverError;
use crate::store::installed::InstallError;
use crate::store::key::KeyError;
use crate::store::project::ProjectError;
use crate::store::request::SendError;
use crate::store::run::RunError;
use crate::store::settings::SettingsError;
use crate::store::skills::SkillError;
use crate::supervisor::SupervisorError;
use crate::terminal::TerminalError;
use crate::workspace::WorkspaceError;

/// An error as a person sees it.
#[derive(Debug)]
pub(super) struct CliError {
    pub(super) code: u8,
    pub(super) message: String,
    pub(super) causes: Vec<String>,
    /// The command that helps.
    pub(super) hint: Option<String>,
}

impl CliError {
    pub(super) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), causes: Vec::new(), hint: None }
    }

    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::new(exit::USAGE, message)
    }

    pub(super) fn missing(message: impl Into<String>) -> Self {
        Self::new(exit::MISSING, message)
    }

    #[must_use]
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn from_error(code: u8, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut wrapped = Self::new(code, error.to_string());
        wrapped.hint = way_out(error).map(str::to_owned);
        wrapped.causes = crate::text::causes(error);
        wrapped
    }

    /// The lines on stderr.
    pub(super) fn render(&self) -> String {
        let mut lines = format!("error: {}", self.message);
        for cause in &self.causes {
            lines.push_str("\n  cause: ");
            lines.push_str(cause);
        }
        if let Some(hint) = &self.hint {
            lines.push_str("\n\nhint: ");
            lines.push_str(hint);
        }
        crate::text::without_controls(&lines)
    }
}

/// What helps against causes that any file may meet.
fn way_out(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    let mut next = Some(error);
    while let Some(error) = next {
        let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        if let Some(StorageFull | QuotaExceeded) = kind {
            return Some("make room on the disk, then try again");
        }
        if let Some(CommandError::NotFound { .. }) = error.downcast_ref::<CommandError>() {
            return Some("install it, or work without a copy: --workspace shared");
        }
        next = error.source();
    }
    None
}

impl From<RunError> for CliError {
    fn from(error: RunError) -> Self {
        let (code, hint) = match &error {
            RunError::Unknown { .. } | RunError::Ambiguous { .. } | RunError::NoneYet => {
                (exit::USAGE, Some("decode ps --all"))
            }
            RunError::Locked => (exit::FAILED, Some("decode ps")),
            RunError::Foreign { .. }
            | RunError::NotADirectory { .. }
            | RunError::Make { .. }
            | RunError::Unreadable { .. } => (exit::MISSING, Some("set DECODE_STATE to a directory of your own")),
            RunError::File(_) | RunError::Header { .. } | RunError::Newer { .. } => {
                (exit::MISSING, Some("decode doctor"))
            }
        };
        let wrapped = Self::from_error(code, &error);
        match hint {
            // A full disk is not helped by another directory's name, nor by the doctor.
            Some(hint) if wrapped.hint.is_none() => wrapped.hint(hint),
            Some(_) | None => wrapped,
        }
    }
}

impl From<TerminalError> for CliError {
    fn from(error: TerminalError) -> Self {
        let wrapped = Self::from_error(exit::MISSING, &error);
        match error {
            TerminalError::NoTmux => wrapped.hint("install tmux, or run without windows: --terminal bare"),
            TerminalError::Refused { .. }
            | TerminalError::ServerGone
            | TerminalError::Start { .. }
            | TerminalError::Full { .. } => wrapped.hint("--terminal bare runs without windows"),
        }
    }
}

impl From<SendError> for CliError {
    fn from(error: SendError) -> Self {
        let code = match &error {
            SendError::Closed => exit::FAILED,
            SendError::TooLarge { .. } => exit::USAGE,
            SendError::Write { .. } => exit::MISSING,
        };
        Self::from_error(code, &error)
    }
}

impl From<CatalogError> for CliError {
    fn from(error: CatalogError) -> Self {
        Self::from_error(exit::USAGE, &error).hint("decode agents")
    }
}

impl From<SkillError> for CliError {
    fn from(error: SkillError) -> Self {
        let hint = match &error {
            SkillError::NotTrusted { .. } => "decode trust",
            SkillError::Misspelt { .. } | SkillError::Unknown { .. } | SkillError::Broken { .. } => "decode skills",
        };
        Self::from_error(exit::USAGE, &error).hint(hint)
    }
}

impl From<ProjectError> for CliError {
    fn from(error: ProjectError) -> Self {
        let hint = match &error {
            ProjectError::Damaged { .. } => Some("decode trust --revoke forgets it; then decide again"),
            ProjectError::TooMany { .. } => Some("take out of .decode, .claude and .agents what does not belong there"),
            ProjectError::Unsound { .. } => Some("rename or remove it"),
            ProjectError::File(_) | ProjectError::Lock { .. } | ProjectError::Newer { .. } => None,
        };
        let wrapped = Self::from_error(exit::MISSING, &error);
        match hint {
            Some(hint) if wrapped.hint.is_none() => wrapped.hint(hint),
            Some(_) | None => wrapped,
        }
    }
}

impl From<PromptError> for CliError {
    fn from(error: PromptError) -> Self {
        Self::from_error(exit::USAGE, &error)
    }
}

macro_rules! with_code {
    ($($error:ty => $code:expr),+ $(,)?) => {
        $(impl From<$error> for CliError {
            fn from(error: $error) -> Self {
                Self::from_error($code, &error)
            }
        })+
    };
}

with_code! {
    SupervisorError => exit::MISSING,
    AttemptError => exit::MISSING,
    HandoverError => exit::MISSING,
    KeyError => exit::MISSING,
    InstallError => exit::MISSING,
    FileError => exit::MISSING,
    SettingsError => exit::USAGE,
    WorkspaceError => exit::MISSING,
    ProviderError => exit::MISSING,
    std::io::Error => exit::MISSING,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_cause_and_the_way_out() {
        let source = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let error = CliError::from(RunError::Make { path: "/x".into(), source });
        assert_eq!(
            error.render(),
            "error: failed to make `/x`\n  cause: permission denied\n\nhint: set DECODE_STATE to a directory of your own"
        );
        assert_eq!(error.code, 6);
    }

    #[test]
    fn a_full_disk_is_told_as_one_whatever_met_it() {
        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        let key = KeyError::File(FileError::Write { path: "/x/key".into(), source: full() });
        for error in [CliError::from(RunError::Make { path: "/x".into(), source: full() }), CliError::from(key)] {
            assert!(error.render().ends_with("hint: make room on the disk, then try again"), "{}", error.render());
        }
    }
}
