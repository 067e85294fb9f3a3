//! Where configuration lies: the user's directories and the project's, and which of the project's files are believed.
//!
//! Deliberately absent: the environment. Who starts decode says where home is; nothing here looks.

use std::path::{Path, PathBuf};

use super::digests::Digests;

/// The configuration directories of one invocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// `~/.config/decode`; `None` without a home.
    pub(crate) user: Option<PathBuf>,
    /// Where other agents keep what is the user's.
    pub(crate) home: Option<PathBuf>,
    /// The project's own directory, the one that holds `.decode/`; `None` outside of any.
    pub(crate) project: Option<PathBuf>,
    pub(crate) trust: Trust,
}

/// The files of a project that the user has seen and said yes to, by content. Empty is the safe state: a repository
/// that was just cloned acts on nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Trust(Digests);

/// Whether a file of the project may act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The user has seen exactly this content.
    Trusted,
    NotTrusted,
}

impl Trust {
    pub(crate) const fn in_files(files: Digests) -> Self {
        Self(files)
    }

    pub(crate) const fn files(&self) -> &Digests {
        &self.0
    }

    /// The standing of a content that was just read; the same bytes must be what is then used.
    pub(crate) fn of(&self, relative: &Path, content: &[u8]) -> Standing {
        match relative.to_str() {
            Some(path) if self.0.holds(path, content) => Standing::Trusted,
            Some(_) | None => Standing::NotTrusted,
        }
    }
}

/// The project that a directory belongs to: the nearest one above that holds `.decode` or is a repository's.
pub(crate) fn top_of(directory: &Path) -> &Path {
    let holds_one = |path: &&Path| path.join(".decode").is_dir() || path.join(".git").exists();
    directory.ancestors().find(holds_one).unwrap_or(directory)
}

impl Places {
    pub(crate) fn user_agents(&self) -> Option<PathBuf> {
        Some(self.user.as_ref()?.join("agents"))
    }

    /// Personas of the user written for Claude Code.
    pub(crate) fn users_foreign_agents(&self) -> Option<PathBuf> {
        Some(self.home.as_ref()?.join(".claude/agents"))
    }

    pub(crate) fn project_agents(&self) -> Option<PathBuf> {
        Some(self.project.as_ref()?.join(".decode").join("agents"))
    }

    /// Personas written for Claude Code, read as they are. In home itself they are the user's own.
    pub(crate) fn foreign_agents(&self) -> Option<PathBuf> {
        Some(self.project_beside_home()?.join(".claude").join("agents"))
    }

    /// Skills of the user: ours last, because the last one wins.
    pub(crate) fn user_skills(&self) -> Vec<PathBuf> {
        let foreign = self.home.iter().flat_map(|home| [home.join(".claude/skills"), home.join(".agents/skills")]);
        foreign.chain(self.user.iter().map(|user| user.join("skills"))).collect()
    }

    /// Skills of the project, in the same order.
    pub(crate) fn project_skills(&self) -> Vec<PathBuf> {
        let foreign = self
            .project_beside_home()
            .into_iter()
            .flat_map(|project| [project.join(".claude/skills"), project.join(".agents/skills")]);
        foreign.chain(self.project.iter().map(|project| project.join(".decode/skills"))).collect()
    }

    pub(crate) fn user_settings(&self) -> Option<PathBuf> {
        Some(self.user.as_ref()?.join("settings.yaml"))
    }

    pub(crate) fn project_settings(&self) -> Option<PathBuf> {
        Some(self.project.as_ref()?.join(".decode").join("settings.yaml"))
    }

    /// The standing of a file of the project, by the content that was read.
    pub(crate) fn standing(&self, path: &Path, content: &[u8]) -> Standing {
        match self.project.as_ref().and_then(|project| path.strip_prefix(project).ok()) {
            Some(relative) => self.trust.of(relative, content),
            None => Standing::NotTrusted,
        }
    }

    /// The project, unless it is home, where `.claude` and `.agents` are the user's own.
    fn project_beside_home(&self) -> Option<&PathBuf> {
        self.project.as_ref().filter(|project| self.home.as_ref() != Some(project))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::digests;

    #[test]
    fn a_file_is_trusted_by_content_and_only_in_its_own_place() {
        let mut files = Digests::default();
        files.insert(".decode/agents/x.md", digests::of(b"x"));
        let places = Places { project: Some("/p".into()), trust: Trust::in_files(files), ..Places::default() };
        assert_eq!(places.standing(Path::new("/p/.decode/agents/x.md"), b"x"), Standing::Trusted);
        assert_eq!(places.standing(Path::new("/p/.decode/agents/x.md"), b"y"), Standing::NotTrusted);
        assert_eq!(places.standing(Path::new("/p/.decode/agents/y.md"), b"x"), Standing::NotTrusted);
        assert_eq!(places.standing(Path::new("/q/.decode/agents/x.md"), b"x"), Standing::NotTrusted);
    }

    #[test]
    fn in_home_itself_the_files_of_other_agents_are_the_users() {
        let places = Places { home: Some("/h".into()), project: Some("/h".into()), ..Places::default() };
        assert_eq!(places.foreign_agents(), None);
        assert_eq!(places.users_foreign_agents(), Some("/h/.claude/agents".into()));
        assert_eq!(places.project_skills(), [PathBuf::from("/h/.decode/skills")]);
        assert_eq!(places.user_skills(), [PathBuf::from("/h/.claude/skills"), "/h/.agents/skills".into()]);
    }
}
