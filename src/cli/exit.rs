//! The exit codes, one list.

/// All went well.
pub(super) const DONE: u8 = 0;
/// It ended, but a child or the task failed.
pub(super) const FAILED: u8 = 1;
/// Asked wrongly.
pub(super) const USAGE: u8 = 2;
/// Waiting for approval.
pub(super) const APPROVAL: u8 = 3;
/// Something is missing or broken here.
pub(super) const MISSING: u8 = 6;

/// The list as `--help` has it.
pub(super) const HELP: &str = "\
Exit codes:
  0    done
  1    ended, but a child or the task failed
  2    usage
  3    waiting for approval
  4    a limit was reached
  5    the model cannot be reached or refused the key
  6    something is missing or broken here
  70   a bug in decode
  75   parked until a provider's limit passes (between attempt and supervisor)
  129, 130, 143   ended by HUP, INT, TERM";
