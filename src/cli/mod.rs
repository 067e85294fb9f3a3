//! The command line: parses, wires, prints. One file a verb: arguments, help, function.
//!
//! Deliberately absent: anything a verb of another program (MCP, a program's `ctx`) would have to write again.

mod agents;
mod answer;
mod asked;
mod attach;
mod attempt;
mod board;
mod depth;
mod doctor;
mod error;
mod exit;
mod explain;
mod fan;
mod flags;
mod fold;
mod here;
mod listing;
mod logs;
mod output;
mod paths;
mod progress;
mod prompts;
mod ps;
mod report;
mod resume;
mod retry;
mod run;
mod send;
mod session;
mod sessions;
mod show;
mod signals;
mod skills;
mod spawn;
mod start;
mod stop;
mod supervise;
mod trust;
mod viewer;
mod wait;
mod window;
mod windowless;
mod wire;

use clap::{CommandFactory, Parser, Subcommand};

use error::CliError;

/// Run many coding agents as real processes that you can watch, steer and trust
#[derive(Debug, Parser)]
#[command(
    name = "decode",
    version,
    after_help = exit::HELP,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,

    /// Without a verb: a session with one agent at a terminal; elsewhere as `decode run`
    #[command(flatten)]
    task: run::Args,

    /// Print the report of this task (the same as `decode run TASK`)
    #[arg(short = 'p', long = "print", value_name = "TASK")]
    print: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(run::Args),
    Fan(fan::Args),
    Ps(ps::Args),
    Show(show::Args),
    Attach(attach::Args),
    Logs(logs::Args),
    Send(send::Args),
    Answer(answer::Args),
    Stop(stop::Args),
    Wait(wait::Args),
    Retry(retry::Args),
    Resume(resume::Args),
    Fold(fold::Args),
    Report(report::Args),
    Agents(agents::Args),
    Skills(skills::Args),
    Trust(trust::Args),
    Doctor(doctor::Args),
    #[command(hide = true)]
    Supervise(supervise::Args),
}

/// Parses, does, and returns the exit code.
pub(crate) fn main() -> u8 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    match perform(cli) {
        Ok(code) => code,
        Err(error) => {
            output::talk(&error.render());
            error.code
        }
    }
}

fn perform(cli: Cli) -> Result<u8, CliError> {
    let Some(verb) = cli.verb else { return without_a_verb(cli.task, cli.print) };
    match verb {
        Verb::Run(args) => run::run(args),
        Verb::Fan(args) => fan::run(&args),
        Verb::Ps(args) => ps::run(&args),
        Verb::Show(args) => show::run(&args),
        Verb::Attach(args) => attach::run(&args),
        Verb::Logs(args) => logs::run(&args),
        Verb::Send(args) => send::run(&args),
        Verb::Answer(args) => answer::run(&args),
        Verb::Stop(args) => stop::run(&args),
        Verb::Wait(args) => wait::run(&args),
        Verb::Retry(args) => retry::run(&args),
        Verb::Resume(args) => resume::run(&args),
        Verb::Fold(args) => fold::run(&args),
        Verb::Report(args) => report::run(&args),
        Verb::Agents(args) => agents::run(&args),
        Verb::Skills(args) => skills::run(&args),
        Verb::Trust(args) => trust::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Supervise(args) => supervise::run(&args),
    }
}

/// `decode` and `decode TASK` are a session where a person can type, and `decode run TASK` where none can, as is
/// `decode -p TASK` anywhere; a single word is most likely a mistyped verb.
fn without_a_verb(mut args: run::Args, print: Option<String>) -> Result<u8, CliError> {
    let can_type = output::input_is_terminal() && output::data_goes_to_terminal();
    let is_session = print.is_none() && can_type && session::fits(&args);
    match print {
        Some(task) => args.task.insert(0, task),
        None if args.task.is_empty() && is_session => {}
        None if args.task.is_empty() => {
            output::talk(&Cli::command().render_help().to_string());
            return Ok(exit::USAGE);
        }
        None => {
            let command = Cli::command();
            let verbs: Vec<&str> =
                command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(clap::Command::get_name).collect();
            crate::machine::prompts::check_words(&args.task, &verbs)?;
        }
    }
    if is_session { session::run(args) } else { run::run(args) }
}

/// Help and version are answers; all else is asked wrongly.
fn refused(error: &clap::Error) -> u8 {
    let text = error.render();
    if error.use_stderr() {
        output::talk(text.to_string().trim_end());
        return exit::USAGE;
    }
    output::line(&text.to_string());
    exit::DONE
}
