//! Which recipe a child gets when nobody named one, and what must be said about it.
//!
//! Deliberately absent: taking tools away. A note says that it is needed; the caller does it.

use std::path::Path;

use super::{Recipe, WorkspaceError, git};

/// A recipe that exists, and what a person should be told about the choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) recipe: Recipe,
    /// With a note the child must not write.
    pub(crate) note: Option<String>,
}

/// Readers share the project; writers get a worktree; outside git a writer becomes a reader.
pub(crate) async fn choose(asked: Option<&str>, only_reads: bool, project: &Path) -> Result<Choice, WorkspaceError> {
    let plain = |recipe: Recipe| Choice { recipe, note: None };
    if let Some(name) = asked.filter(|name| *name != "auto") {
        let recipe: Recipe = name.parse()?;
        if recipe == Recipe::Worktree {
            git::discover(project).await?;
        }
        return Ok(plain(recipe));
    }
    if only_reads {
        return Ok(plain(Recipe::Shared));
    }
    let note = match git::discover(project).await {
        Ok(_) => return Ok(plain(Recipe::Worktree)),
        Err(WorkspaceError::NotARepository { .. }) => "read only: not a git repository".to_owned(),
        Err(WorkspaceError::NoCommits { .. }) => {
            "read only: the repository has no commits yet; make a first commit".to_owned()
        }
        Err(WorkspaceError::NoWorkTree { hint, .. }) => format!("read only: no files of the repository here; {hint}"),
        // A git that is missing or refuses is for the user to mend, not to be worked around in silence.
        Err(error) => return Err(error),
    };
    Ok(Choice { note: Some(note), ..plain(Recipe::Shared) })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{git, project, scratch};
    use super::*;

    #[tokio::test]
    async fn readers_share_and_writers_get_a_worktree() {
        let scratch = scratch();
        let project = project(scratch.path());
        assert_eq!(choose(None, true, &project).await.unwrap().recipe, Recipe::Shared);
        let choice = choose(Some("auto"), false, &project).await.unwrap();
        assert_eq!(choice, Choice { recipe: Recipe::Worktree, note: None });
    }

    #[tokio::test]
    async fn a_writer_where_git_cannot_help_becomes_a_reader_and_is_told() {
        let scratch = scratch();
        let choice = choose(None, false, scratch.path()).await.unwrap();
        assert_eq!(choice.recipe, Recipe::Shared);
        assert_eq!(choice.note.as_deref(), Some("read only: not a git repository"));
        git(scratch.path(), &["init", "-q"]);
        let note = choose(None, false, scratch.path()).await.unwrap().note.unwrap();
        assert!(note.contains("make a first commit"), "{note}");
    }

    #[tokio::test]
    async fn an_explicit_recipe_is_obeyed_or_an_error() {
        let scratch = scratch();
        let project = project(scratch.path());
        assert_eq!(choose(Some("shared"), false, &project).await.unwrap().recipe, Recipe::Shared);
        assert_eq!(choose(Some("worktree"), true, &project).await.unwrap().recipe, Recipe::Worktree);
        let plain = scratch.path().join("plain");
        std::fs::create_dir(&plain).unwrap();
        let error = choose(Some("worktree"), false, &plain).await.unwrap_err();
        assert!(matches!(error, WorkspaceError::NotARepository { .. }), "{error}");
        let error = choose(Some("overlay"), false, &project).await.unwrap_err().to_string();
        assert_eq!(error, "recipe `overlay` is not built yet; use shared or worktree");
        let error = choose(Some("worktre"), false, &project).await.unwrap_err().to_string();
        assert_eq!(error, "unknown workspace recipe `worktre`; known are shared, worktree");
    }
}
