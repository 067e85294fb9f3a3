//! Where the commands of a line run: what `cd` does to all that follows.
//!
//! A command has a set of places it may run in, since a `cd` can fail. Places are paths as the line writes them, from
//! the directory of the call on. Deliberately absent: links, which only the disk knows; the sandbox holds there.

use std::collections::BTreeSet;

use super::syntax::{Node, Simple, Word};

/// The directories a command may run in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Places {
    paths: BTreeSet<String>,
    /// It may be anywhere.
    anywhere: bool,
}

/// A simple command where it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) simple: Simple,
    pub(super) places: Places,
    /// A function of this line has this name; its body is among the steps.
    pub(super) is_function: bool,
}

/// More places than this are as good as all.
const MANY: usize = 8;

impl Places {
    pub(super) fn start() -> Self {
        Self { paths: BTreeSet::from([String::new()]), anywhere: false }
    }

    pub(super) fn anywhere() -> Self {
        Self { paths: BTreeSet::new(), anywhere: true }
    }

    fn or(mut self, other: Self) -> Self {
        self.paths.extend(other.paths);
        self.anywhere |= other.anywhere;
        if self.paths.len() > MANY { Self::anywhere() } else { self }
    }

    /// After a `cd` into the directory.
    fn enter(&self, directory: Option<&str>) -> Self {
        match directory {
            None => Self::anywhere(),
            Some(directory) => Self {
                paths: self.paths.iter().map(|place| join(place, directory)).collect(),
                anywhere: self.anywhere && !directory.starts_with('/'),
            },
        }
    }

    pub(super) fn is_start(&self) -> bool {
        *self == Self::start()
    }

    pub(super) fn is_anywhere(&self) -> bool {
        self.anywhere
    }

    /// What the path may be, from the directory of the call on.
    pub(super) fn resolve(&self, path: &str) -> Vec<String> {
        self.paths.iter().map(|place| join(place, path)).collect()
    }
}

/// `.` and empty parts are taken out; `..` stays where a link could lead elsewhere.
fn join(place: &str, path: &str) -> String {
    let absolute = path.starts_with('/') || place.starts_with('/');
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("{place}/{path}") };
    let parts: Vec<&str> = whole.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    format!("{}{}", if absolute { "/" } else { "" }, parts.join("/"))
}

/// All simple commands of the line in the order of its text.
pub(super) fn steps(node: &Node) -> Vec<Step> {
    let mut walk = Walk { steps: Vec::new(), functions: Vec::new(), moves: moves(node), apart: 0 };
    walk.node(node, Places::start());
    walk.steps
}

struct Walk {
    steps: Vec<Step>,
    /// Functions that are certainly defined.
    functions: Vec<String>,
    /// Some command of the line changes the directory.
    moves: bool,
    /// How deep in conditions and shells of their own.
    apart: usize,
}

/// Where the shell is if the command went well, and if not.
struct After {
    success: Places,
    failure: Places,
}

impl After {
    fn unchanged(places: Places) -> Self {
        Self { success: places.clone(), failure: places }
    }

    fn any(self) -> Places {
        self.success.or(self.failure)
    }
}

impl Walk {
    fn node(&mut self, node: &Node, places: Places) -> After {
        match node {
            Node::Command(simple) => self.command(simple, places),
            Node::Sequence(nodes) => {
                let mut after = After::unchanged(places);
                for node in nodes {
                    let places = after.any();
                    after = self.node(node, places);
                }
                after
            }
            Node::And(left, right) => {
                let left = self.node(left, places);
                let right = self.maybe(right, left.success);
                After { success: right.success, failure: left.failure.or(right.failure) }
            }
            Node::Or(left, right) => {
                let left = self.node(left, places);
                let right = self.maybe(right, left.failure);
                After { success: left.success.or(right.success), failure: right.failure }
            }
            Node::Not(inner) => After::unchanged(self.node(inner, places).any()),
            Node::Apart(inner) => {
                self.maybe(inner, places.clone());
                After::unchanged(places)
            }
            Node::If { condition, then, other } => {
                let condition = self.maybe(condition, places);
                let then = self.maybe(then, condition.success).any();
                After::unchanged(then.or(self.maybe(other, condition.failure).any()))
            }
            Node::Cases(cases) => {
                // A case may fall through into the next.
                let places = if cases.iter().any(moves) { Places::anywhere() } else { places };
                for case in cases {
                    self.maybe(case, places.clone());
                }
                After::unchanged(places)
            }
            Node::Loop(body) => {
                let places = if moves(body) { Places::anywhere() } else { places };
                self.maybe(body, places.clone());
                After::unchanged(places)
            }
            Node::Function { name, body } => {
                // It runs wherever it is called.
                let inside = if self.moves { Places::anywhere() } else { places.clone() };
                self.maybe(body, inside);
                if self.apart == 0 {
                    self.functions.push(name.clone());
                }
                After::unchanged(places)
            }
        }
    }

    /// What may not run at all, or not in this shell.
    fn maybe(&mut self, node: &Node, places: Places) -> After {
        self.apart += 1;
        let after = self.node(node, places);
        self.apart -= 1;
        after
    }

    fn command(&mut self, simple: &Simple, places: Places) -> After {
        let name = simple.words.first().and_then(Word::known);
        let is_function = name.is_some_and(|name| self.functions.iter().any(|function| function == name));
        self.steps.push(Step { simple: simple.clone(), places: places.clone(), is_function });
        match movement(simple) {
            _ if is_function && self.moves => After::unchanged(Places::anywhere()),
            Movement::None => After::unchanged(places),
            Movement::Into(directory) => After { success: places.enter(directory), failure: places },
            Movement::Unknown => After::unchanged(Places::anywhere()),
        }
    }
}

enum Movement<'a> {
    None,
    Into(Option<&'a str>),
    Unknown,
}

fn movement(simple: &Simple) -> Movement<'_> {
    let moving = |word: &Word| matches!(word.known(), Some("cd" | "pushd" | "popd" | "eval" | "source" | "."));
    let Some((name, rest)) = simple.words.split_first() else { return Movement::None };
    match name.known() {
        Some("cd") => {
            let rest = match rest {
                [option, rest @ ..] if option.known() == Some("--") => rest,
                rest => rest,
            };
            let plain = |word: &str| !word.is_empty() && !word.starts_with('-');
            match rest {
                [directory] => Movement::Into(directory.known().filter(|word| plain(word))),
                [] | [_, _, ..] => Movement::Into(None),
            }
        }
        Some("eval" | "source" | "." | "pushd" | "popd") | None => Movement::Unknown,
        // `command cd x`, `time cd x`, `builtin cd x`; of other programs these are arguments.
        Some("command" | "builtin" | "time") if rest.iter().any(moving) => Movement::Unknown,
        Some(_) => Movement::None,
    }
}

/// Whether anything in it may change the directory of the shell it runs in.
fn moves(node: &Node) -> bool {
    match node {
        Node::Command(simple) => !matches!(movement(simple), Movement::None),
        Node::Sequence(nodes) | Node::Cases(nodes) => nodes.iter().any(moves),
        Node::And(left, right) | Node::Or(left, right) => moves(left) || moves(right),
        Node::Not(inner) | Node::Loop(inner) => moves(inner),
        // A function is called from somewhere else.
        Node::Apart(inner) | Node::Function { body: inner, .. } => moves(inner),
        Node::If { condition, then, other } => moves(condition) || moves(then) || moves(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places_of(line: &str, program: &str) -> Vec<String> {
        let steps = steps(&super::super::reader::read(line).unwrap());
        let step = steps.iter().find(|step| step.simple.words.first().and_then(Word::known) == Some(program)).unwrap();
        let mut paths: Vec<String> = step.places.paths.iter().cloned().collect();
        paths.extend(step.places.anywhere.then(|| "anywhere".to_owned()));
        paths
    }

    #[test]
    fn a_command_runs_where_cd_led_to() {
        for (line, want) in [
            ("x", &[""][..]),
            ("cd a && x", &["a"]),
            ("cd a; x", &["", "a"]),
            ("cd a || x", &[""]),
            ("cd a && cd ../b && x", &["a/../b"]),
            ("(cd a); x", &[""]),
            ("cd a | y; x", &[""]),
            ("cd a && y | z; x", &["", "a"]),
            ("cd a && y | z && x", &["a"]),
            ("cd \"$A\" && x", &["anywhere"]),
            ("cd && x", &["anywhere"]),
            ("cd a && x > f", &["a"]),
            ("if cd a; then x; fi", &["a"]),
            ("if cd a; then y; fi; x", &["", "a"]),
            ("for i in 1 2; do x; cd a; done", &["anywhere"]),
            ("f() { cd a; }; f; x", &["anywhere"]),
            ("! cd a && x", &["", "a"]),
            ("cd /tmp && x", &["/tmp"]),
            ("time cd a && x", &["anywhere"]),
            ("cd a & x", &[""]),
            ("{ cd a; } && x", &["a"]),
        ] {
            assert_eq!(places_of(line, "x"), want, "{line}");
        }
    }
}
