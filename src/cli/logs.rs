//! `decode logs`: what a child's window showed.

use std::io::{Read, Seek, SeekFrom};
use std::time::Duration;

use super::error::CliError;
use super::output::Said;
use super::{exit, output, send, wire};
use crate::command::identity::{Identity, Liveness, liveness};
use crate::model::id::Target;
use crate::model::status::Phase;
use crate::store::{AttemptDir, attempt, observed, parts};
use crate::watch::Watch;

/// Bytes read at a time, whatever the log's size.
const CHUNK: usize = 64 * 1024;

/// Print what a child's window showed
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// RUN/3, or RUN/3.1 for an earlier attempt
    #[arg(value_name = "RUN/CHILD")]
    target: Target,

    /// Go on as lines come, until the attempt ends
    #[arg(short, long)]
    follow: bool,

    /// An earlier attempt
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let (_, run, directory) = wire::find(&args.target)?;
    let (_, found) = parts::read(&directory)?;
    let part = send::only(&args.target, &found)?;
    let last = part.memory.as_ref().map_or(0, |memory| memory.attempt);
    let number = args.attempt.or(args.target.attempt).unwrap_or(last);
    if number == 0 || number > last.max(1) {
        return Err(CliError::new(exit::FAILED, format!("{} has no attempt {number} yet", part.id))
            .hint(format!("decode show {run}/{}", part.id.number())));
    }
    let dir = directory.child(&part.id).attempt(number);
    if args.follow { wire::runtime()?.block_on(follow(&dir)) } else { copy(&dir, 0).map(|_| exit::DONE) }
}

/// Copies the log from a position and returns where it ended. Nothing is held in memory but a chunk.
fn copy(dir: &AttemptDir, from: u64) -> Result<u64, CliError> {
    let mut file = match std::fs::File::open(dir.log()) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(from),
        Err(error) => return Err(error.into()),
    };
    file.seek(SeekFrom::Start(from))?;
    let mut at = from;
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = file.read(&mut chunk)?;
        if length == 0 {
            return Ok(at);
        }
        at += length as u64;
        let text = crate::text::without_controls(&String::from_utf8_lossy(&chunk[..length]));
        if output::data(&text) == Said::NobodyListens {
            return Ok(at);
        }
    }
}

/// Nothing will be written any more: it has said its last line, was given up, or died.
pub(super) fn is_over(dir: &AttemptDir) -> bool {
    let Some(claim) = observed::claim(dir).it() else { return false };
    let nonce = attempt::read_brief(dir).map(|brief| brief.nonce).unwrap_or_default();
    let ended = observed::status(dir, &nonce).it().is_some_and(|status| status.phase == Phase::Ended);
    claim.revoked || ended || liveness(&Identity::from(&claim)) == Liveness::Gone
}

async fn follow(dir: &AttemptDir) -> Result<u8, CliError> {
    let (hears, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let watch = Watch::start(hears).ok();
    if let Some(watch) = &watch {
        let _ = watch.add(dir.path());
    }
    let mut at = 0;
    loop {
        // Looked at before the log, so that the last lines of an attempt that ends now are still copied.
        let over = is_over(dir);
        at = copy(dir, at)?;
        if over {
            return Ok(exit::DONE);
        }
        // Appending raises no event that we listen to; the log is looked at four times a second.
        let _ = tokio::time::timeout(Duration::from_millis(250), heard.recv()).await;
    }
}
