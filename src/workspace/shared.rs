//! The recipe `shared`: the project itself, for children that only read.
//!
//! Deliberately absent: any write. Nothing is made, so nothing is collected or removed; that nobody writes is the
//! doing of the tool set and of the sandbox.

use super::{Reach, Request, WorkspaceError, git, text_of};
use crate::model::child::{Collected, Lease};

pub(super) fn prepare(request: &Request) -> Result<Lease, WorkspaceError> {
    let project = &request.project;
    let metadata = project.metadata().map_err(|source| WorkspaceError::disk("enter", project, source))?;
    if !metadata.is_dir() {
        return Err(WorkspaceError::disk("enter", project, std::io::ErrorKind::NotADirectory.into()));
    }
    let path = text_of(project)?;
    Ok(Lease { recipe: request.recipe.clone(), project: path.clone(), path, branch: None, base: None })
}

pub(super) fn collect() -> Collected {
    Collected { clean: true, ..Collected::default() }
}

/// Git reads from the top of the repository and its git directory, which may lie elsewhere.
pub(super) async fn reach(request: &Request) -> Reach {
    match git::discover(&request.project).await {
        Ok(repository) => Reach { writable: Vec::new(), readable: vec![repository.top, repository.common] },
        Err(_) => Reach::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{request, scratch};
    use super::super::{Disposed, collect, dispose, prepare};

    #[tokio::test]
    async fn a_shared_workspace_is_the_project_and_outlives_its_disposal() {
        let scratch = scratch();
        let request = request(scratch.path(), "shared", scratch.path());
        let lease = prepare(&request).await.unwrap();
        assert_eq!((lease.path.as_str(), lease.branch.as_ref()), (scratch.path().to_str().unwrap(), None));
        assert!(collect(&request, &lease).await.unwrap().clean);
        assert_eq!(dispose(&request, &lease).await.unwrap(), Disposed::Removed);
        assert!(scratch.path().is_dir());
    }

    #[tokio::test]
    async fn a_project_that_is_not_there_is_an_error() {
        let scratch = scratch();
        let missing = request(scratch.path(), "shared", &scratch.path().join("missing"));
        assert!(prepare(&missing).await.is_err());
    }
}
