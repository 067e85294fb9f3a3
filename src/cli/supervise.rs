//! `decode supervise DIR`: drives a run. Started by `fan` and its like, in window 0 of the run's session.

use std::path::PathBuf;

use tokio::sync::mpsc;

use super::error::CliError;
use super::signals::{self, Said};
use super::{output, wire};
use crate::command::{make_undumpable, raise_descriptor_limit};
use crate::model::run::Place;
use crate::store::RunDir;
use crate::store::handover::Handover;
use crate::store::run;
use crate::supervisor::{self, Call};

/// Drive a run (started by other verbs)
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The run's directory
    directory: PathBuf,
    /// The one-time file with environment and keys
    #[arg(long, value_name = "FILE")]
    handover: Option<PathBuf>,
    /// End the run when this process ends
    #[arg(long, value_name = "PID")]
    caller: Option<i32>,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let directory = RunDir::at(std::path::absolute(&args.directory)?);
    let log = directory.supervisor_log();
    std::panic::set_hook(Box::new(move |panic| {
        let _ = std::fs::write(&log, format!("a bug in decode: {panic}\n"));
    }));
    drive(args, directory.clone()).inspect_err(|error| {
        // Its window closes with it; who asks why finds the reason here. A detached one has this file as its stderr.
        if output::talks_to_terminal() {
            let _ = std::fs::write(directory.supervisor_log(), error.render() + "\n");
        }
    })
}

fn drive(args: &Args, directory: RunDir) -> Result<u8, CliError> {
    let _ = make_undumpable();
    let handover = match &args.handover {
        Some(path) => Handover::take(path)?,
        None => Handover::default(),
    };
    let _ = raise_descriptor_limit();
    let file = run::read_run(&directory)?;
    wire::runtime()?.block_on(async {
        let place = file.spec.place;
        let world = wire::world(directory, handover, place, args.caller)?;
        if place == Place::Window {
            window_closes_with_us().await;
            output::line(&format!("decode · run {} · {}", file.spec.run, file.spec.goal));
            output::line("Its children are in the windows beside this one; this one drives them.");
        }
        let (to, calls) = mpsc::unbounded_channel();
        listen(to)?;
        let ended = supervisor::drive(world, calls).await?;
        Ok(ended.exit)
    })
}

/// Window 0 goes when the run is over; windows of failed children stay.
async fn window_closes_with_us() {
    let (Ok(server), Ok(pane)) = (wire::tmux_server_of_window(), std::env::var("TMUX_PANE")) else { return };
    // A window that stays is untidy and nothing worse.
    let _ = server.let_window_close(&pane).await;
}

/// TERM and INT stop the run; HUP does not: the window may be closed and the run goes on.
fn listen(to: mpsc::UnboundedSender<Call>) -> Result<(), CliError> {
    signals::on_each(move |said| match said {
        Said::Term | Said::Int => {
            // A loop that has ended has nothing left to stop.
            let _ = to.send(Call::Stop);
        }
        Said::Hup => {}
    })
}
