//! Flags that several verbs share. They are the names that other agents' command lines have too.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::model::budget::Budget;
use crate::model::persona::Mode;
use crate::model::rule::Rule;

/// What `run`, `fan`, `plan` and `job` have in common.
#[derive(Debug, Clone, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct Common {
    /// The persona, by name (see `decode agents`)
    #[arg(long, value_name = "NAME")]
    pub(super) agent: Option<String>,

    /// The model: provider/name, a tier (cheap, default, strong), offline/explorer, or script/FILE
    #[arg(short, long, value_name = "PROVIDER/NAME")]
    pub(super) model: Option<String>,

    /// Who runs the loop inside the window
    #[arg(long, value_name = "NAME", default_value = "decode")]
    pub(super) harness: String,

    /// Where children work: shared, worktree, or auto (a git worktree for those that edit)
    #[arg(long, value_name = "RECIPE", default_value = "auto")]
    pub(super) workspace: String,

    /// How freely tools run that no rule decides
    #[arg(long, value_name = "default|edit|plan|bypass")]
    pub(super) permission_mode: Option<Mode>,

    /// Allow what a rule names, as in 'bash(git *)'
    #[arg(long, value_name = "RULE")]
    pub(super) allow: Vec<Rule>,

    /// Deny what a rule names; beats everything else
    #[arg(long, value_name = "RULE")]
    pub(super) deny: Vec<Rule>,

    /// Limits of the run: usd=5,tokens=2m,requests=200,time=30m, or none; what is not named keeps its default
    #[arg(long, value_name = "LIMITS", value_parser = limits)]
    pub(super) budget: Option<Limits>,

    /// Limits of each child: requests=25,time=10m
    #[arg(long, value_name = "LIMITS", value_parser = limits)]
    pub(super) child_budget: Option<Limits>,

    /// Children at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) width: Option<u32>,

    /// Attempts beyond the first, for a child that fails
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=20))]
    pub(super) retries: u32,

    /// Start and return; `decode wait` prints the answer
    #[arg(short, long)]
    pub(super) detach: bool,

    /// What becomes of the run when its caller ends (default: detach; stop when CI is set)
    #[arg(long, value_name = "stop|detach")]
    pub(super) on_exit: Option<OnExitFlag>,

    /// Where attempts run: in tmux windows, or bare, as processes without any
    #[arg(long, value_name = "tmux|bare", default_value = "tmux")]
    pub(super) terminal: TerminalFlag,

    /// Let questions wait for a person (`decode ps` shows them, `decode answer` answers)
    #[arg(long)]
    pub(super) ask: bool,

    /// Do not ask before a run of many children with a model that costs
    #[arg(short, long)]
    pub(super) yes: bool,

    /// What stdout carries
    #[arg(short, long, value_name = "text|json|stream-json", default_value = "text")]
    pub(super) output_format: Format,

    /// Work in this directory
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(super) cwd: Option<PathBuf>,

    /// Say nothing on stderr but errors
    #[arg(short, long)]
    pub(super) quiet: bool,

    /// Colour on stderr
    #[arg(long, value_name = "auto|always|never", default_value = "auto")]
    pub(super) color: ColorFlag,
}

/// `none`, or bounds of which those not named keep their default.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Limits {
    None,
    Some(Budget),
}

impl Limits {
    /// These limits over others.
    pub(super) fn over(self, usual: Budget) -> Budget {
        match self {
            Self::None => Budget::NONE,
            Self::Some(budget) => budget.or(usual),
        }
    }
}

fn limits(text: &str) -> Result<Limits, String> {
    if text.trim() == "none" { Ok(Limits::None) } else { text.parse().map(Limits::Some) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OnExitFlag {
    Stop,
    Detach,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum TerminalFlag {
    Tmux,
    Bare,
}

/// How a run that is there already is followed.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Following {
    /// What stdout carries
    #[arg(short, long, value_name = "text|json|stream-json", default_value = "text")]
    pub(super) output_format: Format,

    /// Say nothing on stderr but errors
    #[arg(short, long)]
    pub(super) quiet: bool,

    /// Colour on stderr
    #[arg(long, value_name = "auto|always|never", default_value = "auto")]
    pub(super) color: ColorFlag,
}

impl Common {
    /// How the run that these flags start is followed.
    pub(super) const fn following(&self) -> Following {
        Following { output_format: self.output_format, quiet: self.quiet, color: self.color }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
    StreamJson,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ColorFlag {
    // On a terminal, unless `NO_COLOR` is set.
    Auto,
    Always,
    Never,
}
