//! Reads a shell line: the tree of tree-sitter-bash, turned to our own and checked against the text.
//!
//! The grammar of the tree is looser than that of the shell, so it is believed only where the text bears it out: a word
//! must end where a word ends, a command must not run over a line, a here-document must end at its mark, and what no
//! node covers must be blank. Lists and pipes are joined anew, since the tree does not know what binds stronger.
//! Whatever is not listed here is not understood. Deliberately absent: what commands mean.

use std::ops::ControlFlow;

use tree_sitter::{Node as Branch, ParseOptions, Parser};

use super::syntax::{Assignment, Node, Piece, RESERVED, Simple, Unclear, Word, Words};
use super::words;

mod compound;
mod expansion;
mod redirect;

/// Longer lines are files, and files can be written.
const LONGEST: usize = 32 * 1024;
/// Nodes within nodes; the shell itself manages more, people do not.
const DEEPEST: usize = 120;
/// How often the parser may report that it still works; every 100 steps it does. Honest lines need some tens.
const PATIENCE: usize = 2_000;

type Read<T> = Result<T, Unclear>;

/// All that the line would run, or what was not understood.
pub(super) fn read(line: &str) -> Read<Node> {
    if line.len() > LONGEST {
        return Err(Unclear::Long(LONGEST));
    }
    if line.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        return Err(Unclear::Control);
    }
    match parsed(line, line) {
        // For where things are, another letter will do: what they say is read from the line itself.
        Err(error) if line.contains(LONE_DASH) => parsed(line, &line.replace(LONE_DASH, " _ <<")).map_err(|_| error),
        result => result,
    }
}

/// The grammar loses a lone dash before a here-document.
const LONE_DASH: &str = " - <<";

fn parsed(line: &str, as_if: &str) -> Read<Node> {
    let tree = tree(as_if)?;
    let root = tree.root_node();
    let mut reader = Reader { source: line, inner: Vec::new(), depth: 0 };
    reader.covered(root)?;
    reader.statements(&children(root))
}

fn tree(line: &str) -> Read<tree_sitter::Tree> {
    let mut parser = Parser::new();
    let grammar = || Unclear::Grammar { near: near(line) };
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).map_err(|_| grammar())?;
    let mut reports = 0;
    let mut progress = |_: &tree_sitter::ParseState| {
        reports += 1;
        if reports > PATIENCE { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let options = ParseOptions::new().progress_callback(&mut progress);
    let bytes = line.as_bytes();
    let tree = parser.parse_with_options(&mut |at, _| bytes.get(at..).unwrap_or_default(), None, Some(options));
    let tree = tree.ok_or(Unclear::Slow)?;
    match first_error(tree.root_node()) {
        None => Ok(tree),
        Some(at) => Err(Unclear::Grammar { near: near(&line[line.floor_char_boundary(at)..]) }),
    }
}

/// Where the grammar gave up, if it did. Without recursion: the tree may be deep.
fn first_error(root: Branch<'_>) -> Option<usize> {
    if !root.has_error() {
        return None;
    }
    let mut cursor = root.walk();
    loop {
        let node = cursor.node();
        if node.is_error() || node.is_missing() {
            return Some(node.start_byte());
        }
        if node.has_error() && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return Some(root.start_byte());
            }
        }
    }
}

fn near(text: &str) -> String {
    crate::text::one_line(text, 40)
}

fn children(node: Branch<'_>) -> Vec<Branch<'_>> {
    let mut cursor = node.walk();
    node.children(&mut cursor).collect()
}

struct Reader<'a> {
    source: &'a str,
    /// Substitutions of the command that is being read: they run before it.
    inner: Vec<Node>,
    depth: usize,
}

/// How an item of a list stands to the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Join {
    First,
    And,
    Or,
    Pipe,
}

/// An item of a list, open for redirections that follow.
struct Item {
    join: Join,
    negated: bool,
    body: Body,
    /// Redirections of a compound command, or all that there is.
    opens: Simple,
    /// What runs before it.
    inner: Vec<Node>,
}

enum Body {
    Simple(Simple),
    Compound(Node),
}

impl<'a> Reader<'a> {
    fn text(&self, node: Branch<'_>) -> &'a str {
        &self.source[node.byte_range()]
    }

    fn unclear(&self, node: Branch<'_>, what: &'static str) -> Unclear {
        Unclear::Form { what, near: near(self.text(node)) }
    }

    /// Whatever no leaf covers must be blank. Strings and here-documents are read character by character later.
    fn covered(&self, root: Branch<'_>) -> Read<()> {
        let mut cursor = root.walk();
        let mut at = 0;
        loop {
            let node = cursor.node();
            let is_leaf = node.child_count() == 0 || matches!(node.kind(), "string" | "heredoc_body");
            if is_leaf {
                if node.start_byte() > at {
                    self.blank(at, node.start_byte())?;
                }
                at = at.max(node.end_byte());
            } else if cursor.goto_first_child() {
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    return self.blank(at, self.source.len());
                }
            }
        }
    }

    fn blank(&self, from: usize, to: usize) -> Read<()> {
        let gap = &self.source[from..to];
        if gap.replace("\\\n", "").chars().all(|c| matches!(c, ' ' | '\t' | '\n')) {
            return Ok(());
        }
        Err(Unclear::Grammar { near: near(gap) })
    }

    /// Between the parts of one command no line ends.
    fn same_line(&self, before: Branch<'_>, after: Branch<'_>) -> Read<()> {
        let gap = self.source.get(before.end_byte()..after.start_byte()).unwrap_or_default();
        if gap.replace("\\\n", "").contains('\n') {
            return Err(self.unclear(after, "a command runs over a line"));
        }
        Ok(())
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        if self.depth >= DEEPEST {
            return Err(Unclear::Deep);
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Statements with their terminators.
    fn statements(&mut self, nodes: &[Branch<'_>]) -> Read<Node> {
        let mut sequence = Vec::new();
        let mut apart = true;
        let mut before: Option<Branch<'_>> = None;
        for node in nodes {
            match node.kind() {
                ";" | "\n" => apart = true,
                "&" => {
                    let before = sequence.pop().ok_or_else(|| self.unclear(*node, "nothing is before it"))?;
                    sequence.push(Node::Apart(Box::new(before)));
                    apart = true;
                }
                "comment" => self.comment(*node)?,
                _ if node.is_named() => {
                    // Sometimes the tree has no node for the end of a line.
                    if !apart && self.same_line(before.unwrap_or(*node), *node).is_ok() {
                        return Err(self.unclear(*node, "two commands are not apart"));
                    }
                    apart = false;
                    before = Some(*node);
                    let statement = self.deeper(|reader| reader.statement(*node))?;
                    sequence.push(statement);
                }
                _ => return Err(self.unclear(*node, "a word is not understood")),
            }
        }
        Ok(if sequence.len() == 1 { sequence.remove(0) } else { Node::Sequence(sequence) })
    }

    fn comment(&self, node: Branch<'_>) -> Read<()> {
        match self.source[..node.start_byte()].chars().next_back() {
            None | Some(' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')') => Ok(()),
            Some(_) => Err(self.unclear(node, "a comment is not understood")),
        }
    }

    fn statement(&mut self, node: Branch<'_>) -> Read<Node> {
        let outer = std::mem::take(&mut self.inner);
        let mut items = Vec::new();
        self.items(node, Join::First, &mut items)?;
        let left = std::mem::replace(&mut self.inner, outer);
        let node = joined(items);
        if left.is_empty() {
            return Ok(node);
        }
        Ok(Node::Sequence(left.into_iter().chain([node]).collect()))
    }

    /// The items of nested lists and pipes, in the order of the text.
    fn items(&mut self, node: Branch<'_>, join: Join, items: &mut Vec<Item>) -> Read<()> {
        self.deeper(|reader| match node.kind() {
            "list" | "pipeline" => {
                let mut join = join;
                for child in children(node) {
                    match child.kind() {
                        "&&" => join = Join::And,
                        "||" => join = Join::Or,
                        "|" | "|&" => join = Join::Pipe,
                        "comment" => reader.comment(child)?,
                        _ => reader.items(child, join, items)?,
                    }
                }
                Ok(())
            }
            "negated_command" => {
                let from = items.len();
                for child in children(node).into_iter().filter(|child| child.kind() != "!") {
                    reader.items(child, join, items)?;
                }
                if let Some(item) = items.get_mut(from) {
                    item.negated = true;
                }
                Ok(())
            }
            "redirected_statement" => reader.redirected(node, join, items),
            "command"
            | "declaration_command"
            | "unset_command"
            | "variable_assignment"
            | "variable_assignments"
            | "test_command" => {
                let simple = reader.simple(node)?;
                items.push(Item::new(join, Body::Simple(simple), std::mem::take(&mut reader.inner)));
                Ok(())
            }
            _ => {
                let body = reader.compound(node)?;
                items.push(Item::new(join, Body::Compound(body), std::mem::take(&mut reader.inner)));
                Ok(())
            }
        })
    }

    fn redirected(&mut self, node: Branch<'_>, join: Join, items: &mut Vec<Item>) -> Read<()> {
        let mut before = None;
        for (at, child) in children(node).into_iter().enumerate() {
            let is_redirect = matches!(child.kind(), "file_redirect" | "heredoc_redirect" | "herestring_redirect");
            if at == 0 && !is_redirect {
                self.items(child, join, items)?;
            } else if at == 0 {
                items.push(Item::new(join, Body::Simple(Simple::default()), Vec::new()));
            }
            if let Some(before) = before {
                self.same_line(before, child)?;
            }
            before = Some(child);
            if is_redirect {
                self.redirect(child, items)?;
            } else if at > 0 {
                return Err(self.unclear(child, "a redirection is not understood"));
            }
        }
        Ok(())
    }

    fn simple(&mut self, node: Branch<'_>) -> Read<Simple> {
        let mut items = vec![Item::new(Join::First, Body::Simple(Simple::default()), Vec::new())];
        let mut before: Option<Branch<'_>> = None;
        let parts = if node.kind() == "variable_assignment" { vec![node] } else { children(node) };
        for child in parts {
            if let Some(before) = before {
                self.same_line(before, child)?;
            }
            before = Some(child);
            match child.kind() {
                "file_redirect" | "herestring_redirect" => {
                    self.redirect(child, &mut items)?;
                    continue;
                }
                "comment" => {
                    self.comment(child)?;
                    continue;
                }
                _ => {}
            }
            let Some(Body::Simple(simple)) = items.last_mut().map(|item| &mut item.body) else { continue };
            match (node.kind(), child.kind()) {
                ("command" | "variable_assignment" | "variable_assignments", "variable_assignment") => {
                    simple.assignments.push(self.assignment(child)?);
                }
                ("test_command", _) => simple.words.extend(self.test(node, child)?),
                ("declaration_command", "variable_assignment") => {
                    let assignment = self.assignment(child)?;
                    let mut word = Word::literal(&format!("{}=", assignment.name));
                    word.pieces.extend(assignment.value.pieces);
                    simple.words.push(word);
                }
                ("command", "command_name") => {
                    let name = child.child(0).ok_or_else(|| self.unclear(child, "there is no command"))?;
                    simple.words.push(self.word(name)?);
                }
                ("declaration_command" | "unset_command", "variable_name") => {
                    simple.words.push(Word::literal(self.text(child)));
                }
                (_, "subshell" | "regex") => return Err(self.unclear(child, "an argument is not understood")),
                (_, "==" | "=~" | "$") => simple.words.push(self.token(child)?),
                _ if child.is_named() => simple.words.push(self.word(child)?),
                ("declaration_command" | "unset_command", _) => simple.words.push(self.token(child)?),
                _ => return Err(self.unclear(child, "an argument is not understood")),
            }
        }
        let item = items.pop().ok_or_else(|| self.unclear(node, "it is empty"))?;
        self.inner.extend(item.inner);
        let Body::Simple(mut simple) = item.body else { return Err(self.unclear(node, "it is not simple")) };
        simple.text = near(self.text(node));
        self.plausible(node, &simple)?;
        Ok(simple)
    }

    /// A reserved word or an assignment where a command should be: the shell reads it otherwise than the tree.
    fn plausible(&self, node: Branch<'_>, simple: &Simple) -> Read<()> {
        if node.kind() == "test_command" {
            return Ok(());
        }
        let Some(first) = simple.words.first() else { return Ok(()) };
        let reserved = |word: &Word| word.bare && word.known().is_some_and(|word| RESERVED.contains(&word));
        let mut words = simple.words.iter();
        let mut next = words.next();
        // `time` is a word of the grammar: a command stands after it.
        while next.is_some_and(|word| word.bare && word.known() == Some("time")) {
            next = words.by_ref().find(|word| !matches!(word.known(), Some("-p" | "--")));
        }
        let joined = next.is_some_and(|word| is_assignment(&word.shown()));
        if reserved(first) || next.is_some_and(reserved) || joined {
            return Err(self.unclear(node, "its grammar is not understood"));
        }
        if simple.words.iter().any(|word| word.bare && matches!(word.known(), Some("{" | "}"))) {
            return Err(self.unclear(node, "a brace is not understood"));
        }
        Ok(())
    }

    fn assignment(&mut self, node: Branch<'_>) -> Read<Assignment> {
        let (mut name, mut value) = (String::new(), Word::default());
        for (at, child) in children(node).into_iter().enumerate() {
            match child.kind() {
                "variable_name" if at == 0 => {
                    self.begins(child)?;
                    self.text(child).clone_into(&mut name);
                }
                "=" => {}
                "+=" => value.pieces.push(Piece::Unknown(Words::One)),
                "array" => {
                    for word in children(child).into_iter().filter(Branch::is_named) {
                        self.word(word)?;
                    }
                    value.pieces.push(Piece::Unknown(Words::One));
                }
                _ if child.is_named() && at > 0 => {
                    self.ends(child)?;
                    self.pieces(child, &mut value)?;
                }
                _ => return Err(self.unclear(node, "an assignment is not understood")),
            }
        }
        Ok(Assignment { name, value })
    }

    /// A word, whole: with nothing that belongs to it left outside.
    fn word(&mut self, node: Branch<'_>) -> Read<Word> {
        self.begins(node)?;
        self.ends(node)?;
        let mut word = Word { pieces: Vec::new(), bare: true };
        self.pieces(node, &mut word)?;
        if word.pieces.len() > 1 && word.pieces[0] == Piece::Text(String::new()) {
            word.pieces.remove(0);
        }
        if word.bare || !matches!(node.kind(), "string" | "raw_string") {
            words::braces(&mut word);
        }
        Ok(word)
    }

    /// A word that the tree has as a token.
    fn token(&mut self, node: Branch<'_>) -> Read<Word> {
        self.begins(node)?;
        self.ends(node)?;
        Ok(Word { pieces: vec![Piece::Text(self.text(node).to_owned())], bare: true })
    }

    fn begins(&self, node: Branch<'_>) -> Read<()> {
        match self.source[..node.start_byte()].chars().next_back() {
            None | Some(' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>' | '`') => Ok(()),
            Some(_) => Err(self.unclear(node, "a word has parts that are not understood")),
        }
    }

    fn ends(&self, node: Branch<'_>) -> Read<()> {
        let text = self.text(node);
        match self.source[node.end_byte()..].chars().next() {
            None | Some(' ' | '\t' | '\n' | ';' | '&' | '|' | ')' | '`') => Ok(()),
            // `2>x` and `{a}>x` name a descriptor.
            Some('<' | '>') if !text.ends_with('}') && !text.bytes().all(|b| b.is_ascii_digit()) => Ok(()),
            Some(_) => Err(self.unclear(node, "a word has parts that are not understood")),
        }
    }
}

impl Item {
    fn new(join: Join, body: Body, inner: Vec<Node>) -> Self {
        Self { join, negated: false, body, opens: Simple::default(), inner }
    }

    fn node(self) -> Node {
        let mut sequence = self.inner;
        match self.body {
            Body::Simple(simple) => sequence.push(Node::Command(simple)),
            Body::Compound(node) => {
                if !self.opens.redirects.is_empty() || self.opens.fed {
                    sequence.push(Node::Command(self.opens));
                }
                sequence.push(node);
            }
        }
        if sequence.len() == 1 { sequence.remove(0) } else { Node::Sequence(sequence) }
    }
}

/// Pipes bind stronger than `&&` and `||`, which are equal and are taken from the left.
fn joined(items: Vec<Item>) -> Node {
    let mut chain: Vec<(Join, bool, Vec<Node>)> = Vec::new();
    for item in items {
        let (join, negated) = (item.join, item.negated);
        match chain.last_mut() {
            Some((_, _, parts)) if join == Join::Pipe => parts.push(item.node()),
            Some(_) | None => chain.push((join, negated, vec![item.node()])),
        }
    }
    let mut whole: Option<Node> = None;
    for (join, negated, mut parts) in chain {
        let part = if parts.len() == 1 {
            parts.remove(0)
        } else {
            Node::Sequence(parts.into_iter().map(|part| Node::Apart(Box::new(part))).collect())
        };
        let part = if negated { Node::Not(Box::new(part)) } else { part };
        whole = Some(match (whole, join) {
            (None, _) => part,
            (Some(before), Join::And) => Node::And(Box::new(before), Box::new(part)),
            (Some(before), Join::Or) => Node::Or(Box::new(before), Box::new(part)),
            (Some(before), Join::First | Join::Pipe) => Node::Sequence(vec![before, part]),
        });
    }
    whole.unwrap_or(Node::Sequence(Vec::new()))
}

/// Whether a word at the beginning of a command would set a variable.
pub(super) fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        let name = name.strip_suffix('+').unwrap_or(name);
        let name = name.split_once('[').map_or(name, |(name, _)| name);
        name.chars().enumerate().all(|(at, c)| c == '_' || c.is_ascii_alphabetic() || (at > 0 && c.is_ascii_digit()))
            && !name.is_empty()
    })
}
