//! `decode fan`: several prompts at once, in windows, gathered and folded.

use std::path::PathBuf;

use super::asked::{self, Asked, Door};
use super::error::CliError;
use super::flags::{Common, Following, Format};
use super::progress::Progress;
use super::viewer::{self, Followed};
use super::{exit, fold, output, prompts, start, wire};
use crate::machine::snapshot;
use crate::machine::view::{self, Part};
use crate::model::run::{Place, RunFile};
use crate::store::{RunDir, parts, run as runs};

/// Run several prompts at once, in windows, and print their reports folded into one answer
///
/// Each prompt is a child: a process of its own, in a tmux window you can attach to. The run survives the end of this
/// command: `decode wait ID` prints the same answer.
///
/// Example: decode fan "Where is X decided? Report path:line." "Who calls Y? Report path:line."
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The prompts, one a child; `-` reads one from stdin
    #[arg(value_name = "PROMPT")]
    prompts: Vec<String>,

    /// More prompts: .md (one `##` heading each), .jsonl (one object a line), else one a line
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    asked::depth()?;
    let prompts = prompts::gather(&args.prompts, args.from.as_deref())?;
    let state = wire::state_root()?;
    wire::runtime()?.block_on(async {
        let place = asked::place(&args.common);
        if place == Place::Window {
            wire::tmux_server()?.alive().await?;
        }
        let door = Door {
            default_agent: "explore",
            place,
            session: None,
            resume: None,
            append_system_prompt: None,
            schema: None,
        };
        let Asked { new, handover, start_line, notes } = asked::build(prompts, &args.common, door).await?;
        wire::key(&state)?;
        let spec = runs::create(&state, new, asked::random)?;
        let directory = state.run(&spec.run);
        if !args.common.quiet {
            for note in notes {
                output::talk(&format!("note: {note}"));
            }
            output::talk(&start_line);
        }
        if let Err(error) = start::supervisor(&directory, &spec, &handover).await {
            // Nothing was spent; a run that never began is no run.
            if !runs::is_driven(&directory) {
                let _ = std::fs::remove_dir_all(directory.path());
            }
            return Err(error);
        }
        if args.common.detach {
            output::line(spec.run.as_str());
            if !args.common.quiet {
                output::talk(&format!("the run goes on: decode wait {}", spec.run));
            }
            return Ok(exit::DONE);
        }
        if !args.common.quiet {
            output::talk(&format!("run {} · watch it: decode attach {}", spec.run, spec.run));
        }
        await_end(&directory, args.common.following()).await
    })
}

/// Follows a run and prints what it comes to; the same for `fan` and `wait`.
pub(super) async fn await_end(directory: &RunDir, how: Following) -> Result<u8, CliError> {
    match viewer::follow(directory, Progress::new(how)).await? {
        Followed::Left { exit } => {
            // The last line of JSON is the result, also of a run that goes on without its viewer.
            if how.output_format != Format::Text {
                let (file, found) = parts::read(directory)?;
                output::line(&snapshot::fan_json(&view::run(&file, &found), "", wire::clock().wall));
            }
            Ok(exit)
        }
        Followed::Ended { file, parts } => print(directory, &file, &parts, how.output_format),
    }
}

/// Prints the end of a run on stdout; the exit code is the run's.
pub(super) fn print(directory: &RunDir, file: &RunFile, parts: &[Part], format: Format) -> Result<u8, CliError> {
    let fold = fold::text(directory, file, parts);
    let text = match format {
        Format::Text => fold,
        Format::Json | Format::StreamJson => snapshot::fan_json(&view::run(file, parts), &fold, wire::clock().wall),
    };
    output::deliver(&text).map_err(|error| error.hint(format!("decode fold {}", file.spec.run)))?;
    Ok(file.exit.unwrap_or(exit::FAILED))
}
