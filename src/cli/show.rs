//! `decode show`: everything about a run or a child.

use super::error::CliError;
use super::{exit, output, wire};
use crate::machine::snapshot::{self, ChildSnapshot};
use crate::machine::view::{self, Part};
use crate::model::id::Target;
use crate::model::run::RunState;
use crate::store::{RunDir, parts, run as runs};

/// Show everything about a run, or about one child
///
/// Example: decode show last/3
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// RUN, RUN/3, last or last/3
    #[arg(value_name = "RUN[/CHILD]")]
    target: Target,

    /// One JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let (state, asked, directory) = wire::find(&args.target)?;
    let (file, found) = parts::read(&directory)?;
    let run = view::run(&file, &found);
    let now = wire::clock().wall;
    if args.json {
        output::line(&snapshot::snapshot_json(&run, now));
        return Ok(exit::DONE);
    }
    let columns = output::columns();
    match &args.target.child {
        None => {
            output::line(&snapshot::heading(&run, columns, now));
            output::line(&format!("goal      {}", run.goal));
            output::line(&format!("project   {}", run.project));
            if let Some(parent) = &run.parent {
                output::line(&format!("parent    {parent}"));
            }
            for (number, file) in runs::of_agents(&state, &asked) {
                output::line(&format!("agents    {} for child {number}", file.spec.run));
            }
            output::line(&format!("limits    {} · spent {}", run.limits, snapshot::cost_words(&run.spent)));
            output::line(&format!("files     {}", directory.path().display()));
            if file.state != RunState::Ended && !runs::is_driven(&directory) {
                output::line(&format!("note      no supervisor drives it: decode resume {}", run.run));
            }
            output::line("\n");
            output::line(&snapshot::table(&run, now));
        }
        Some(name) => {
            let index = run
                .children
                .iter()
                .position(|child| name.matches(&child.id))
                .ok_or_else(|| no_child(&args.target, run.children.len()))?;
            child(&directory, &run.children[index], &found[index]);
            for (number, file) in runs::of_agents(&state, &asked) {
                if number == run.children[index].id.number() {
                    output::line(&format!("\nits agents: decode show {}", file.spec.run));
                }
            }
        }
    }
    Ok(exit::DONE)
}

/// A child that is not there, with what is.
pub(super) fn no_child(target: &Target, children: usize) -> CliError {
    let asked = target.child.as_ref().map(ToString::to_string).unwrap_or_default();
    CliError::usage(format!("this run has no child `{asked}`; it has {children}")).hint("decode ps")
}

fn child(directory: &RunDir, child: &ChildSnapshot, part: &Part) {
    let newest = part.memory.as_ref().map_or(1, |memory| memory.attempt.max(1));
    let attempt = directory.child(&part.id).attempt(newest);
    let mut lines = vec![
        format!("child     {} · {}", child.id, child.label),
        format!("state     {}", joined(child.state.word(), &child.doing)),
        format!("attempts  {}", child.attempts),
        format!("model     {}", part.spec.model),
        format!("persona   {} · mode {}", part.spec.persona.name, part.spec.persona.mode),
        format!("workspace {}", joined(&part.spec.workspace, &child.workspace)),
        format!(
            "spent     {} requests · {} tokens · {}",
            child.requests,
            child.usage.tokens(),
            snapshot::cost_words(&child.usage)
        ),
    ];
    if let Some(branch) = &child.branch {
        lines.push(format!("branch    {branch} (git merge {branch})"));
    }
    if let Some(session) = &child.session {
        lines.push(format!("session   {session}"));
    }
    if let Some(question) = &child.question {
        lines.push(format!("asks      {} (decode answer)", question.text));
    }
    if let Some(error) = &child.error {
        lines.push(format!("error     {error}"));
    }
    if !child.files_changed.is_empty() {
        lines.push(format!("changed   {}", child.files_changed.join(", ")));
    }
    lines.push(format!("files     {}", attempt.path().display()));
    lines.push(String::new());
    lines.push(part.spec.prompt.clone());
    for line in lines {
        output::line(&crate::text::without_controls(&line));
    }
}

/// Both, or the first alone where the second adds nothing.
fn joined(first: &str, second: &str) -> String {
    if second.is_empty() || second == first { first.to_owned() } else { format!("{first} · {second}") }
}
