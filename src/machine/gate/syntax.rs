//! What a shell line says, as far as the gate has to know it: commands, what they are joined by, the files they open.
//!
//! A word is a list of pieces, because the gate must tell what is written from what the shell puts in its place.
//! Deliberately absent: how a line is read (`reader`), and any opinion about what it does.

use super::pattern::{ANY, Piece as GlobPiece};

/// Why a line was not understood. Such a line is asked, never guessed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unclear {
    #[error("it is longer than {0} bytes")]
    Long(usize),
    #[error("it is nested too deeply")]
    Deep,
    #[error("it takes too long to read")]
    Slow,
    #[error("it has a control character")]
    Control,
    #[error("its grammar is not understood at `{near}`")]
    Grammar { near: String },
    #[error("{what} at `{near}`")]
    Form { what: &'static str, near: String },
}

/// A piece of a line, with what is needed to follow `cd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Command(Simple),
    Sequence(Vec<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Not(Box<Node>),
    /// Runs in a shell of its own: part of a pipe, substitution, background, parentheses.
    Apart(Box<Node>),
    If {
        condition: Box<Node>,
        then: Box<Node>,
        other: Box<Node>,
    },
    /// One of these, or none.
    Cases(Vec<Node>),
    /// Any number of times.
    Loop(Box<Node>),
    Function {
        name: String,
        body: Box<Node>,
    },
}

/// A simple command. Without words it only sets variables or opens files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Simple {
    pub(super) assignments: Vec<Assignment>,
    pub(super) words: Vec<Word>,
    pub(super) redirects: Vec<Redirect>,
    /// A here-document or here-string is its input.
    pub(super) fed: bool,
    /// As it is written.
    pub(super) text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) name: String,
    pub(super) value: Word,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Redirect {
    pub(super) access: Access,
    pub(super) target: Word,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// One word as it is written; the program may get several words for it, or none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) pieces: Vec<Piece>,
    /// No part of it is quoted, so that it may be a reserved word.
    pub(super) bare: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    /// `*`: any characters of file names.
    Star,
    /// `?` or `[…]`: one character of a file name.
    One,
    /// `~` or `$HOME` at the beginning.
    Home,
    /// A process substitution: a pipe, whatever its name is.
    Pipe,
    /// What an expansion gives.
    Unknown(Words),
}

/// How many words an expansion may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    One,
    Many,
}

impl Word {
    pub(super) fn literal(text: &str) -> Self {
        Self { pieces: vec![Piece::Text(text.to_owned())], bare: false }
    }

    pub(super) fn unknown() -> Self {
        Self { pieces: vec![Piece::Unknown(Words::Many)], bare: false }
    }

    pub(super) fn push(&mut self, text: &str) {
        match self.pieces.last_mut() {
            Some(Piece::Text(before)) => before.push_str(text),
            Some(Piece::Star | Piece::One | Piece::Home | Piece::Pipe | Piece::Unknown(_)) | None => {
                self.pieces.push(Piece::Text(text.to_owned()));
            }
        }
    }

    /// The text, if the program gets exactly this one word.
    pub(super) fn known(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// What the word certainly begins with.
    pub(super) fn beginning(&self) -> &str {
        match self.pieces.first() {
            Some(Piece::Text(text)) => text,
            Some(Piece::Star | Piece::One | Piece::Home | Piece::Pipe | Piece::Unknown(_)) | None => "",
        }
    }

    /// Whether it could be an option that is not written out: `$X`, `*`, `-n$X`; not `--format=$X` or `src/$X`.
    pub(super) fn may_be_option(&self) -> bool {
        if self.known().is_some() {
            return false;
        }
        let beginning = self.beginning();
        match self.pieces.first() {
            Some(Piece::Home | Piece::Pipe) => self.expands(),
            _ => beginning.is_empty() || (beginning.starts_with('-') && !beginning.contains('=')) || self.expands(),
        }
    }

    /// Whether further words may follow from it.
    pub(super) fn expands(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Unknown(Words::Many)))
    }

    /// Whether it has parts that not even the file names in the workspace would tell.
    pub(super) fn is_open(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Unknown(_)))
    }

    /// The text with `ANY` for what is not known.
    pub(super) fn shown(&self) -> String {
        self.pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Home => "~".to_owned(),
                Piece::Star | Piece::One | Piece::Pipe | Piece::Unknown(_) => ANY.to_string(),
            })
            .collect()
    }

    /// The word as something to hold a path pattern against.
    pub(super) fn glob(&self) -> Vec<GlobPiece> {
        let mut glob = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => glob.extend(text.chars().map(GlobPiece::Char)),
                Piece::One => glob.push(GlobPiece::One),
                Piece::Star | Piece::Home | Piece::Pipe | Piece::Unknown(_) => glob.push(GlobPiece::Any),
            }
        }
        glob
    }
}

/// Words that change what the following ones mean, where a command is expected.
pub(super) const RESERVED: &[&str] = &[
    "!", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in",
    "select", "then", "until", "while", "{", "}",
];
