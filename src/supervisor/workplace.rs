//! Prepares, collects and disposes workspaces on tasks; the results come back as events.
//!
//! Deliberately absent: what a recipe does (`workspace/`), and when.

use std::path::Path;

use super::{Message, Sender, World};
use crate::command::tree::kill_marked;
use crate::machine::{ChildEvent, Event, citation};
use crate::model::child::{Collected, Failure, FailureKind, Lease};
use crate::model::id::{ChildId, RunId};
use crate::text;
use crate::workspace;

/// Which workspace of which child.
pub(super) fn request(world: &World, run: &RunId, child: &ChildId, recipe: &str, project: &str) -> workspace::Request {
    workspace::Request {
        run: run.clone(),
        child: child.clone(),
        recipe: recipe.to_owned(),
        project: project.into(),
        directory: world.state.workspace(run, child),
    }
}

pub(super) async fn prepare(request: workspace::Request, epoch: u64, reuse: Option<Lease>, to: Sender) {
    let child = request.child.clone();
    let event = match reuse {
        Some(lease) if Path::new(&lease.path).is_dir() => ChildEvent::Prepared { epoch, lease },
        _ => match workspace::prepare(&request).await {
            Ok(lease) => ChildEvent::Prepared { epoch, lease },
            Err(error) => ChildEvent::PrepareFailed { epoch, failure: failure(&error) },
        },
    };
    let _ = to.send(Message::Event(Event::Child { child, event }));
}

/// A workspace that cannot be made says why, with its cause.
fn failure(error: &workspace::WorkspaceError) -> Failure {
    let kind = if error.is_lasting() { FailureKind::Missing } else { FailureKind::Workspace };
    Failure::new(kind, text::chain(error))
}

/// Secures the work, then checks the report's citations against it.
pub(super) async fn collect(
    request: workspace::Request,
    epoch: u64,
    lease: Option<Lease>,
    report: Option<String>,
    leftovers: Option<String>,
    to: Sender,
) {
    let child = request.child.clone();
    if let Some(mark) = leftovers {
        // A child that was killed leaves its commands behind; they must not write into what is secured now, nor
        // beside the next attempt.
        let _ = tokio::task::spawn_blocking(move || kill_marked(&mark)).await;
    }
    let event = match &lease {
        None => ChildEvent::Collected { epoch, collected: Collected { clean: true, ..Collected::default() } },
        Some(lease) => match workspace::collect(&request, lease).await {
            Ok(collected) => {
                let root = lease.path.clone();
                let unsound_citations = match report {
                    Some(report) => tokio::task::spawn_blocking(move || {
                        workspace::unsound(Path::new(&root), &citation::extract(&report))
                    })
                    .await
                    .unwrap_or_default(),
                    None => Vec::new(),
                };
                ChildEvent::Collected { epoch, collected: Collected { unsound_citations, ..collected } }
            }
            Err(error) => ChildEvent::CollectFailed { epoch, detail: text::chain(&error) },
        },
    };
    let _ = to.send(Message::Event(Event::Child { child, event }));
}

/// Removes what would not be missed; what would be is kept, and that is no error.
pub(super) async fn dispose(request: workspace::Request, lease: Lease) {
    let _ = workspace::dispose(&request, &lease).await;
}
