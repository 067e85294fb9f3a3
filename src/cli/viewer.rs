//! Follows a run that a supervisor drives. A viewer's end changes nothing.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::error::CliError;
use super::progress::Progress;
use super::{exit, output, start, wire};
use crate::command::PidFd;
use crate::machine::view::{self, Part};
use crate::model::request::Asked;
use crate::model::run::{OnExit, RunFile, RunState};
use crate::store::{RunDir, parts};
use crate::watch::{Heard, Watch};

/// Elapsed times on a screen move once a second.
const TICK: Duration = Duration::from_secs(1);
/// What an event lost is seen by then.
const RESCAN: Duration = Duration::from_secs(5);

/// How following ended.
#[derive(Debug)]
pub(super) enum Followed {
    Ended {
        file: Box<RunFile>,
        parts: Vec<Part>,
    },
    /// The viewer goes, the run goes on.
    Left {
        exit: u8,
    },
}

/// What a person says after Ctrl-C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Detach,
    Stop,
    GoOn,
}

/// Shows progress until the run is over or the viewer is sent away.
pub(super) async fn follow(directory: &RunDir, mut progress: Progress) -> Result<Followed, CliError> {
    let (hears, mut heard) = mpsc::unbounded_channel();
    let watch = Watch::start(hears).ok();
    if let Some(watch) = &watch {
        let _ = watch.add(directory.path());
    }
    let (wishes, mut wished) = mpsc::unbounded_channel();
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terms = signal(SignalKind::terminate())?;
    let mut hups = signal(SignalKind::hangup())?;
    let mut interrupted = 0_u32;
    let period = if progress.ticks() { TICK } else { RESCAN };
    let mut reader = parts::Reader::new(directory);
    loop {
        let file = reader.look()?;
        progress.show(&view::run(&file, reader.parts()), wire::clock().wall);
        if file.state == RunState::Ended {
            return Ok(Followed::Ended { file: Box::new(file), parts: reader.parts().to_vec() });
        }
        let driver = driver(&file);
        tokio::select! {
            Some(first) = heard.recv() => drain(first, &mut heard),
            () = tokio::time::sleep(period) => {}
            () = gone(driver) => {
                if let Some(end) = abandoned(directory, &file)? {
                    return Ok(end);
                }
            }
            Some(()) = interrupts.recv() => {
                interrupted += 1;
                progress.leave();
                if !output::input_is_terminal() {
                    return Ok(leave(&file, 130));
                }
                if interrupted > 1 {
                    stop(directory, &file)?;
                } else {
                    ask(wishes.clone());
                }
            }
            Some(()) = terms.recv() => return Ok(leave(&file, 143)),
            Some(()) = hups.recv() => return Ok(leave(&file, 129)),
            Some(wish) = wished.recv() => match wish {
                Wish::Detach => return Ok(leave(&file, 130)),
                Wish::Stop => stop(directory, &file)?,
                Wish::GoOn => interrupted = 0,
            },
        }
    }
}

/// Many events are one look.
fn drain(_first: Heard, heard: &mut mpsc::UnboundedReceiver<Heard>) {
    while heard.try_recv().is_ok() {}
}

/// The supervisor's process, to notice that nobody drives the run any more.
fn driver(file: &RunFile) -> Option<PidFd> {
    let supervisor = file.supervisor.as_ref()?;
    PidFd::open(supervisor.pid).ok().flatten()
}

async fn gone(driver: Option<PidFd>) {
    match driver {
        Some(descriptor) => descriptor.gone().await,
        // It may end between two looks; the next look at the files says how.
        None => tokio::time::sleep(TICK).await,
    }
}

/// The supervisor may be gone: it has just written the end, or it was killed. `None` if somebody drives on.
fn abandoned(directory: &RunDir, file: &RunFile) -> Result<Option<Followed>, CliError> {
    let driven = crate::store::run::is_driven(directory);
    let (now, found) = parts::read(directory)?;
    if now.state == RunState::Ended {
        return Ok(Some(Followed::Ended { file: Box::new(now), parts: found }));
    }
    if driven {
        return Ok(None);
    }
    let run = &file.spec.run;
    let mut error =
        CliError::new(exit::FAILED, format!("the supervisor of {run} is gone; its children go on by themselves"))
            .hint(format!("decode resume {run}"));
    error.causes.extend(last_words(directory));
    Err(error)
}

/// Why a supervisor ended, as far as it could still say so.
fn last_words(directory: &RunDir) -> Option<String> {
    if crate::files::is_full(directory.path()) {
        return Some(format!("the disk of `{}` is full", directory.path().display()));
    }
    start::last_words(directory).map(|words| words.trim_start_matches("error: ").to_owned())
}

fn leave(file: &RunFile, code: u8) -> Followed {
    if file.spec.on_exit == OnExit::Detach {
        output::talk(&format!("the run goes on: decode wait {}", file.spec.run));
    }
    Followed::Left { exit: code }
}

fn stop(directory: &RunDir, file: &RunFile) -> Result<(), CliError> {
    let state = directory.state().ok_or_else(|| CliError::missing("the state directory is gone"))?;
    let run = file.spec.run.to_string();
    super::send::request(&directory.inbox(), &run, Asked::Stop, "", &wire::key(&state)?)?;
    output::talk("stopping; what the children have is kept");
    Ok(())
}

/// Asks on a thread of its own: a terminal is read line by line.
fn ask(to: mpsc::UnboundedSender<Wish>) {
    output::talk("\nd detach, s stop, Enter go on; Ctrl-C again stops");
    std::thread::spawn(move || {
        let mut line = String::new();
        let wish = match std::io::stdin().read_line(&mut line) {
            Ok(_) => match line.trim() {
                "d" => Wish::Detach,
                "s" => Wish::Stop,
                _ => Wish::GoOn,
            },
            Err(_) => Wish::GoOn,
        };
        let _ = to.send(wish);
    });
}
