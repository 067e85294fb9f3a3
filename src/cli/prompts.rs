//! Prompts from arguments, `--from`, `-` and a pipe beside them.

use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::error::CliError;
use super::{exit, output};
use crate::files;
use crate::machine::prompts::{self, PROMPT_BYTES, Prompt};

/// Bytes of a file of prompts: many prompts of the longest kind, and no file that was named by mistake.
const FILE_BYTES: u64 = 8 * PROMPT_BYTES as u64;
/// How long a pipe beside a prompt may stay silent before it is left alone.
const PATIENCE_MS: u16 = 500;

/// The prompts of `fan`.
pub(super) fn gather(arguments: &[String], from: Option<&Path>) -> Result<Vec<Prompt>, CliError> {
    let mut found: Vec<Prompt> = Vec::new();
    let mut words: Vec<String> = Vec::new();
    for argument in arguments {
        if argument == "-" {
            found.push(Prompt::new(read_stdin()?));
        } else {
            words.push(argument.clone());
            found.push(Prompt::new(argument.clone()));
        }
    }
    if !words.is_empty() {
        prompts::check_words(&words, &[])?;
    }
    match from {
        Some(path) if path == Path::new("-") => found.extend(prompts::parse_lines(&read_stdin()?, "stdin")?),
        Some(path) => {
            let text = files::read(path, FILE_BYTES).map_err(|error| CliError::from_error(exit::USAGE, &error))?;
            found.extend(prompts::parse(&text, &path.to_string_lossy())?);
        }
        None => {
            if let [only] = found.as_mut_slice()
                && !arguments.iter().any(|argument| argument == "-")
            {
                append_pipe(&mut only.prompt)?;
            }
        }
    }
    let texts: Vec<&str> = found.iter().map(|prompt| prompt.prompt.as_str()).collect();
    prompts::check_limits(&texts)?;
    Ok(found)
}

/// The one task of `run`: words, or `-`, with what a pipe brings appended.
pub(super) fn one(words: &[String]) -> Result<Prompt, CliError> {
    let text = match words {
        [] => {
            let mut text = String::new();
            append_pipe(&mut text)?;
            if text.trim().is_empty() {
                return Err(CliError::usage("no task; write it in quotes, or pipe it in"));
            }
            text
        }
        [dash] if dash == "-" => read_stdin()?,
        [one] => {
            let mut text = one.clone();
            append_pipe(&mut text)?;
            text
        }
        many => {
            prompts::check_words(many, &[])?;
            many.join(" ")
        }
    };
    prompts::check_limits(&[&text])?;
    Ok(Prompt::new(text))
}

/// A pipe beside a prompt is waited for half a second; if a byte comes it is read to its end, else left alone.
fn append_pipe(prompt: &mut String) -> Result<(), CliError> {
    let stdin = std::io::stdin();
    if output::input_is_terminal() || is_nothing(&stdin) {
        return Ok(());
    }
    let mut ready = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let patience = if prompt.is_empty() { PollTimeout::NONE } else { PollTimeout::from(PATIENCE_MS) };
    match poll(&mut ready, patience) {
        Ok(0) => {
            output::talk("note: stdin is open and silent; it is left alone");
            return Ok(());
        }
        Ok(_) => {}
        Err(_) => return Ok(()),
    }
    let piped = read_stdin()?;
    if !piped.is_empty() {
        if !prompt.is_empty() {
            prompt.push_str("\n\n");
        }
        prompt.push_str(&piped);
    }
    Ok(())
}

/// Whether stdin is `/dev/null` or closed: nothing will come.
fn is_nothing(stdin: &std::io::Stdin) -> bool {
    use nix::sys::stat::{SFlag, fstat};
    let Ok(stat) = fstat(stdin.as_fd()) else { return true };
    let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
    !(kind == SFlag::S_IFIFO || kind == SFlag::S_IFREG || kind == SFlag::S_IFSOCK)
}

fn read_stdin() -> Result<String, CliError> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().take(PROMPT_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > PROMPT_BYTES {
        return Err(CliError::usage(format!("stdin has more than {PROMPT_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| CliError::usage("stdin is not UTF-8 text"))
}
