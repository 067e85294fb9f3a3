//! HUP, INT and TERM as values: one listener, whatever a verb makes of them.

use tokio::signal::unix::{SignalKind, signal};

use super::error::CliError;

/// A signal that asks for an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// The terminal is gone.
    Hup,
    Int,
    Term,
}

/// Calls `act` for each of the three, for as long as the runtime lives.
pub(super) fn on_each(mut act: impl FnMut(Said) + Send + 'static) -> Result<(), CliError> {
    let mut hup = signal(SignalKind::hangup())?;
    let mut int = signal(SignalKind::interrupt())?;
    let mut term = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                Some(()) = hup.recv() => act(Said::Hup),
                Some(()) = int.recv() => act(Said::Int),
                Some(()) = term.recv() => act(Said::Term),
                else => return,
            }
        }
    });
    Ok(())
}
