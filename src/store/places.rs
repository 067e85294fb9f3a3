//! Where configuration lies: the user's directory and the project's, and how far the project is believed.
//!
//! Deliberately absent: the environment. Who starts decode says where home is; nothing here looks.

use std::path::PathBuf;

/// The configuration directories of one invocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// `~/.config/decode`; `None` without a home.
    pub(crate) user: Option<PathBuf>,
    /// The project's own directory, the one that holds `.decode/`; `None` outside of any.
    pub(crate) project: Option<PathBuf>,
    pub(crate) trust: Trust,
}

/// Whether the user has said that the project's configuration may act.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Trust {
    Given,
    /// The safe state: a repository that was just cloned acts on nothing.
    #[default]
    NotYet,
}

impl Places {
    pub(crate) fn user_agents(&self) -> Option<PathBuf> {
        Some(self.user.as_ref()?.join("agents"))
    }

    pub(crate) fn project_agents(&self) -> Option<PathBuf> {
        Some(self.project.as_ref()?.join(".decode").join("agents"))
    }

    /// Personas written for Claude Code, read as they are.
    pub(crate) fn foreign_agents(&self) -> Option<PathBuf> {
        Some(self.project.as_ref()?.join(".claude").join("agents"))
    }

    pub(crate) fn user_settings(&self) -> Option<PathBuf> {
        Some(self.user.as_ref()?.join("settings.yaml"))
    }

    pub(crate) fn project_settings(&self) -> Option<PathBuf> {
        Some(self.project.as_ref()?.join(".decode").join("settings.yaml"))
    }
}
