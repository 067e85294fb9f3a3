//! `decode attach`: into the live windows of a run, from a plain terminal or from inside another tmux.

use std::os::unix::process::CommandExt;

use super::error::CliError;
use super::{exit, logs, output, send, windowless, wire};
use crate::model::id::Target;
use crate::store::observed;
use crate::store::parts;

/// Attach to the live windows of a run
///
/// Alt-n and Alt-p go to the next and previous window, Alt-w lists them, Alt-q goes back. What you type and end with
/// Enter steers the child you look at, and Ctrl-D on an empty line leaves. Closing your terminal changes nothing. A child
/// that lives on without a window is shown by its log, with the same line to type on.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// RUN, RUN/3 or last
    #[arg(value_name = "RUN[/CHILD]", default_value = "last")]
    target: Target,

    /// Inside tmux: as a popup over the current window
    #[arg(long)]
    popup: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let (_, run, directory) = wire::find(&args.target)?;
    let (_, found) = parts::read(&directory)?;
    let server = wire::tmux_server()?;
    let window = wire::runtime()?.block_on(async {
        let windows = server.windows(run.as_str()).await?;
        let wanted = match &args.target.child {
            Some(_) => {
                let part = send::only(&args.target, &found)?;
                let name = part.id.to_string();
                windows.iter().rev().find(|window| window.name == name)
            }
            // A child that works is more to see than the supervisor.
            None => windows.iter().find(|window| window.name != "supervisor").or_else(|| windows.first()),
        };
        Ok::<_, CliError>(wanted.map(|window| window.id.clone()))
    })?;
    let Some(window) = window else { return without_window(args, &directory, &found) };
    if !output::input_is_terminal() {
        return Err(CliError::usage("attach needs a terminal").hint(format!("decode logs -f {run}/1")));
    }
    let viewer = format!("v{}", std::process::id());
    let argv = server.attach_argv(run.as_str(), &window, &viewer)?;
    Err(become_client(args, &argv))
}

/// Becomes the tmux client. Inside another tmux it opens there, in a window or a popup of the user's own server.
fn become_client(args: &Args, argv: &[std::ffi::OsString]) -> CliError {
    let inside = std::env::var_os("TMUX").is_some();
    let mut command = if inside {
        let mut command = std::process::Command::new("tmux");
        if args.popup {
            command.args(["display-popup", "-E", "-w", "90%", "-h", "90%"]);
        } else {
            command.args(["new-window", "-n", "decode"]);
        }
        // Without TMUX the inner client does not refuse to nest.
        command.args(["env", "-u", "TMUX"]).args(argv.iter().map(|word| escaped(word)));
        command
    } else {
        let mut command = std::process::Command::new(&argv[0]);
        command.args(&argv[1..]);
        command
    };
    let error = command.exec();
    CliError::new(exit::MISSING, format!("tmux cannot be started: {error}"))
}

/// tmux takes a word that is or ends in `;` for its own separator.
fn escaped(word: &std::ffi::OsStr) -> std::ffi::OsString {
    match word.to_str() {
        Some(text) if text.ends_with(';') => format!("{}\\;", &text[..text.len() - 1]).into(),
        Some(_) | None => word.to_owned(),
    }
}

/// A window that is closed: its log, with a line of input where the child lives on without it.
fn without_window(
    args: &Args,
    directory: &crate::store::RunDir,
    found: &[crate::machine::view::Part],
) -> Result<u8, CliError> {
    if args.target.child.is_none() && found.len() != 1 {
        return Err(
            CliError::new(exit::FAILED, "this run has no windows").hint("decode logs RUN/1, or decode fold RUN")
        );
    }
    let part = send::only(&args.target, found)?;
    let attempt = part.memory.as_ref().map_or(1, |memory| memory.attempt.max(1));
    let dir = directory.child(&part.id).attempt(attempt);
    let lives = part.memory.as_ref().is_some_and(|memory| !memory.state.is_final());
    if lives && output::input_is_terminal() && output::data_goes_to_terminal() && !logs::is_over(&dir) {
        return windowless::run(&dir, &args.target);
    }
    output::talk("its window is closed; this is its log");
    let text = observed::log_tail(&dir, 1024 * 1024).unwrap_or_default();
    output::line(&crate::text::without_controls(&text));
    Ok(exit::DONE)
}
