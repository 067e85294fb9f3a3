//! Starts the supervisor of a run: in window 0 of the run's own tmux session, or as a detached process.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::error::CliError;
use super::{exit, wire};
use crate::command::spawn_detached;
use crate::files;
use crate::model::run::{OnExit, Place, RunSpec, RunState};
use crate::store::RunDir;
use crate::store::handover::Handover;
use crate::store::run;
use crate::watch::Watch;

/// A supervisor that has not written its first line by then is not going to.
const PATIENCE: Duration = Duration::from_secs(15);

/// Hands over, starts, and waits until the supervisor drives the run.
pub(super) async fn supervisor(directory: &RunDir, spec: &RunSpec, handover: &Handover) -> Result<(), CliError> {
    let path = match wire::private_directory() {
        Some(private) => private.join(format!("decode-{}", spec.run)),
        None => directory.path().join("environment"),
    };
    let (hears, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let watch = Watch::start(hears).ok();
    if let Some(watch) = &watch {
        let _ = watch.add(directory.path());
    }
    handover.write(&path)?;
    let started = start(directory, spec, handover, &path).await;
    if let Err(error) = started {
        // A key must not outlive the start that failed.
        let _ = std::fs::remove_file(&path);
        return Err(error);
    }
    let drives = async {
        loop {
            if let Ok(file) = run::read_run(directory)
                && file.state != RunState::Made
            {
                return;
            }
            // What an event lost is found a moment later.
            let _ = tokio::time::timeout(Duration::from_millis(200), heard.recv()).await;
        }
    };
    if tokio::time::timeout(PATIENCE, drives).await.is_err() {
        let _ = std::fs::remove_file(&path);
        let error = CliError::missing(format!("the supervisor of {} did not start", spec.run));
        let words = last_words(directory).unwrap_or_else(|| "--terminal bare says more".to_owned());
        return Err(error.hint(words));
    }
    Ok(())
}

/// What a supervisor said last, where it ended without another word.
pub(super) fn last_words(directory: &RunDir) -> Option<String> {
    files::tail(&directory.supervisor_log(), 2_000).map(|words| words.trim().to_owned())
}

async fn start(
    directory: &RunDir,
    spec: &RunSpec,
    handover: &Handover,
    path: &std::path::Path,
) -> Result<(), CliError> {
    let mut argv: Vec<OsString> = vec![
        wire::executable()?.into(),
        "supervise".into(),
        directory.path().as_os_str().to_owned(),
        "--handover".into(),
        path.as_os_str().to_owned(),
    ];
    if spec.on_exit == OnExit::Stop {
        argv.push("--caller".into());
        argv.push(std::process::id().to_string().into());
    }
    match spec.place {
        Place::Window => {
            let server = wire::tmux_server_for(&handover.environment)?;
            // A run that is taken up again may still have its session, with windows of children in it.
            if server.sessions().await?.iter().any(|session| session == spec.run.as_str()) {
                server.add_window(spec.run.as_str(), &argv).await?;
            } else {
                server.start_session(spec.run.as_str(), &argv, &wire::tmux_configuration()).await?;
            }
        }
        Place::Bare | Place::Here => {
            let root = PathBuf::from("/");
            spawn_detached(&argv, &directory.supervisor_log(), &wire::plain_environment(), &root)
                .map_err(|error| CliError::new(exit::MISSING, format!("the supervisor cannot start: {error}")))?;
        }
    }
    Ok(())
}
